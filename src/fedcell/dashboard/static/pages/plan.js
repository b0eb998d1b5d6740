// Plan: one round for devices of one's own, under every policy at once.

import { atMost, compute, computeText, latest } from "../lib/client.js";
import { download, h, icon, throttle } from "../lib/dom.js";
import { DeviceEditor } from "./devices.js";
import { explained } from "./glossary.js";
import { lawChoice } from "./law.js";
import { PlanMap } from "./plan_map.js";
import { PlanView } from "./plan_view.js";

const STORED = "fedcell-plan";

/** A slider with a number beside it. */
function slider(name, label, { min, max, step, value }, changed) {
  const range = h("input", { type: "range", min, max, step, value, "aria-label": label, name });
  const number = h("input", { type: "number", step: "any", value, "aria-label": `${label}, as a number` });
  range.addEventListener("input", () => {
    number.value = range.value;
    changed();
  });
  number.addEventListener("input", () => {
    range.value = number.value;
    changed();
  });
  const set = (to) => {
    range.value = number.value = to;
  };
  return {
    element: h("div", { class: "slider" }, h("span", { class: "field-label" }, label), range, number),
    range,
    number,
    set,
  };
}

class PlanPage {
  constructor(root, shared) {
    this.root = root;
    this.shared = shared;
    this.ask = latest((body) => compute("api/plan", body));
    this.recompute = throttle(
      80,
      atMost(2, () => this.compute()),
    );
    shared.info.then(
      (info) => this.build(info),
      (error) => root.append(h("p", { class: "error" }, error.message)),
    );
  }

  show() {}

  build(info) {
    this.info = info;
    this.editor = new DeviceEditor({
      limits: info.limits,
      changed: () => this.changed(),
      tryText: (text) => compute("api/plan", this.body({ devices_csv: text })),
    });
    const changed = () => this.changed();
    const { cell } = info.defaults;
    this.sliders = {
      bandwidth: slider(
        "bandwidth",
        "bandwidth, MHz",
        { min: 0.2, max: 20, step: 0.1, value: cell.bandwidth_hz / 1e6 },
        changed,
      ),
      radius: slider("radius", "radius, m", { min: 100, max: 3000, step: 50, value: cell.radius_m }, changed),
      model: slider("model", "one upload, Mbit", { min: 0.1, max: 30, step: 0.1, value: info.plan_cell.model_bits / 1e6 }, changed),
      theta: slider("theta", "theta", { min: -0.05, max: 0.2, step: 0.005, value: 0 }, changed),
    };
    this.law = lawChoice(info.laws, changed);
    this.radiusNote = h(
      "small",
      { class: "note blank" }, // its place is kept: the map must not move under a device that is dragged
      "The radius is for random cells; your devices have their own positions.",
    );
    this.error = h("p", { class: "error", role: "alert" });
    const save = (format, name) =>
      h("button", { type: "button", "data-export": format, onclick: () => this.export(format) }, icon("down"), name);
    this.view = new PlanView(h("div", { class: "actions" }, save("csv", "CSV"), save("json", "JSON")));
    this.map = new PlanMap((index, metres) => this.editor.set(index, "distance_m", metres));
    const whatIf = h(
      "section",
      { class: "card what-if", "aria-label": "What if" },
      ...Object.entries(this.sliders).map(([name, { element }]) => (name === "theta" ? explained("theta", "Theta", element) : element)),
      ...this.law.fields,
      this.radiusNote,
      this.error,
    );
    this.root.classList.add("with-side", "plan");
    this.root.append(
      h("div", { class: "plan-side" }, this.editor.element),
      h("div", { class: "plan-main" }, whatIf, this.map.element, ...this.view.elements),
    );
    this.restore();
    this.compute();
  }

  cell() {
    const value = ({ number }, scale = 1) =>
      number.value === "" ? null : Number((Number(number.value) * scale).toPrecision(12));
    return {
      bandwidth_hz: value(this.sliders.bandwidth, 1e6),
      model_bits: Math.round(value(this.sliders.model, 1e6)),
      ...(this.editor.drawn ? { radius_m: value(this.sliders.radius) } : {}),
    };
  }

  body(source) {
    const theta = this.sliders?.theta.number.value ?? "0";
    const law = this.law?.line() ?? "density";
    return { ...source, law, cell: this.sliders ? this.cell() : {}, theta: theta === "" ? null : Number(theta) };
  }

  changed() {
    const drawn = this.editor.drawn;
    for (const input of [this.sliders.radius.range, this.sliders.radius.number]) input.disabled = !drawn;
    this.radiusNote.classList.toggle("blank", drawn);
    this.recompute();
  }

  async compute() {
    this.root.setAttribute("aria-busy", "true");
    const { drawn } = this.editor;
    try {
      const answer = await this.ask(this.body(this.editor.source));
      if (!answer) return;
      this.error.textContent = "";
      this.root.classList.remove("stale");
      if (drawn && this.editor.drawn && answer.table) this.editor.setDrawn(answer.table);
      else this.editor.fill();
      this.view.draw(answer);
      this.map.draw(answer, this.editor.columns, this.editor.rows);
      clearTimeout(this.keeping);
      this.keeping = setTimeout(() => this.keep(), 500); // once it rests
    } catch (error) {
      this.error.textContent = error.message;
      this.root.classList.add("stale"); // what is shown is of before
    } finally {
      this.root.removeAttribute("aria-busy");
    }
  }

  async export(format) {
    try {
      const text = await computeText("api/plan", {
        ...this.body(this.editor.source),
        format: format === "json" ? "json-file" : "csv",
      });
      download(`plan.${format}`, text, format === "json" ? "application/json" : "text/csv");
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  /** A reload keeps the plan, as long as the tab is open. */
  keep() {
    const sliders = Object.fromEntries(Object.entries(this.sliders).map(([name, { number }]) => [name, number.value]));
    const text = JSON.stringify({ sliders, law: this.law.line(), source: this.editor.source, name: this.editor.name });
    try {
      if (text.length < 1e6) sessionStorage.setItem(STORED, text);
    } catch {
      // no storage: the reload starts anew
    }
  }

  restore() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(STORED) ?? "null");
      if (!kept) return;
      for (const [name, value] of Object.entries(kept.sliders)) this.sliders[name].set(value);
      if (kept.law) this.law.set(kept.law);
      this.editor.restore(kept.source, kept.name);
      this.changed();
    } catch {
      // what was kept is not understood: start anew
    }
  }
}

export const mount = (root, shared) => new PlanPage(root, shared);
