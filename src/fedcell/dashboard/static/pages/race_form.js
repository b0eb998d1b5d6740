// The form of a race: the cell, the task, the policies, the seeds.

import { swatch } from "../charts/ink.js";
import { field, h, icon, setOptions } from "../lib/dom.js";
import { explained } from "./glossary.js";
import { lawChoice } from "./law.js";

const numberInput = (name, value, extra = {}) =>
  h("input", { type: "number", name, value, required: true, step: "any", ...extra });
const textInput = (name, value, list) =>
  h("input", { type: "text", name, value, required: true, list, autocomplete: "off", spellcheck: "false" });

function suggestions(id, values) {
  return h(
    "datalist",
    { id },
    (values ?? []).map((value) => h("option", { value })),
  );
}

function group(title, ...children) {
  return h("fieldset", {}, h("legend", {}, title), children);
}

/** The policies of the race as chips, with an editor for one more. */
class Policies {
  constructor(info) {
    this.info = info;
    this.lines = [...info.policies];
    this.chips = h("ul", { class: "chips", "aria-label": "Policies of the race" });
    this.select = h("select", { "aria-label": "Policy to add", onchange: () => this.fillSettings() });
    setOptions(
      this.select,
      info.all_policies.map((policy) => [policy.name, policy.name]),
    );
    this.settings = h("span", { class: "settings" });
    const add = h("button", { type: "button", onclick: () => this.add() }, icon("plus"), "Add");
    this.element = group("Policies", this.chips, h("div", { class: "add-policy" }, this.select, add, this.settings));
    this.fillSettings();
    this.fillChips();
  }

  fillChips() {
    this.chips.replaceChildren(
      ...this.lines.map((line) => {
        const known = this.info.colours[line]; // the server gives others theirs when the race begins
        const off = () => {
          this.lines = this.lines.filter((other) => other !== line);
          this.fillChips();
        };
        return h(
          "li",
          { class: "chip" },
          known && swatch(known.colour, known.dash),
          h("span", {}, line),
          h("button", { type: "button", "aria-label": `Remove ${line}`, onclick: off }, icon("close")),
        );
      }),
    );
  }

  fillSettings() {
    const policy = this.info.all_policies.find(({ name }) => name === this.select.value);
    const usual = { k: 8, seconds: 8 };
    const input = (setting) => {
      const value = setting.default ?? usual[setting.name] ?? "";
      const fixed = setting.kind === "truth" ? ["false", "true"] : this.info.choices[setting.name];
      const props = { name: setting.name, "data-default": String(setting.default ?? "") };
      const control = fixed
        ? h(
            "select",
            props,
            fixed.map((choice) => h("option", { selected: choice === String(value) }, choice)),
          )
        : h("input", { ...props, type: "text", value: String(value) });
      return h("label", { class: "setting" }, h("span", {}, setting.name.replace("_", " ")), control);
    };
    this.settings.replaceChildren(...(policy?.settings ?? []).map(input));
  }

  add() {
    const inputs = [...this.settings.querySelectorAll("input, select")];
    const given = inputs.filter((input) => input.value.trim() !== "" && input.value.trim() !== input.dataset.default);
    const text = given.map((input) => `${input.name}=${input.value.trim()}`).join(",");
    const line = text ? `${this.select.value}:${text}` : this.select.value;
    if (!this.lines.includes(line)) this.lines.push(line);
    this.fillChips();
  }
}

/**
 * The whole form: `element`, and `fill(race)` for another one like it. `start(document)` is called with what
 * POST /api/races takes, and may throw the server's sentence.
 */
export function raceForm(info, start) {
  const { cell, devices, task, budget_s: budget, knowledge, profiles, epsilon, slack } = info.defaults;
  const choices = info.choices;
  const select = (name, values, value) => {
    const element = h("select", { name });
    setOptions(
      element,
      values.map((choice) => [choice, choice]),
      value,
    );
    return element;
  };
  const policies = new Policies(info);
  const law = lawChoice(info.laws);
  const error = h("p", { class: "error", role: "alert" });
  const button = h("button", { type: "submit", class: "primary wide" }, icon("play"), "Start race");
  const form = h(
    "form",
    { class: "card form", "aria-label": "New race", novalidate: true },
    h("h2", {}, "New race"),
    h(
      "div",
      { class: "form-body" },
      group(
        "Cell",
        field("radius, m", numberInput("radius_m", cell.radius_m, { min: 1, step: 50 })),
        field("bandwidth, MHz", numberInput("bandwidth_mhz", cell.bandwidth_hz / 1e6, { step: 0.5 })),
        ...law.fields,
        field("devices", numberInput("count", devices.count, { min: 1, step: 1 })),
        field("channel", textInput("channel", cell.channel, "channels")),
        field("rate", select("rate", choices.rate, cell.rate)),
        field("shadowing, dB", numberInput("shadowing_db", cell.shadowing_db, { min: 0, step: 1 })),
        field("fading", select("fading", choices.fading, cell.fading)),
        field("SNR error, dB", numberInput("csi_error_db", cell.csi_error_db, { min: 0, step: 1 })),
        field("mobility", textInput("mobility", devices.mobility, "mobilities")),
        field("availability", textInput("availability", devices.availability, "availabilities")),
      ),
      group(
        "Task",
        field("data", choices.data?.length ? select("data", choices.data, task.data) : textInput("data", task.data)),
        explained("partition", "Partition", field("partition", textInput("partition", task.partition, "partitions"))),
        field("epochs", numberInput("epochs", task.epochs, { min: 0 })),
        field("aggregator", textInput("aggregator", task.aggregator, "aggregators")),
        explained("profiles", "Profiles", field("profiles", select("profiles", choices.profiles, profiles))),
        field("epsilon", numberInput("epsilon", epsilon ?? "", { min: 0, required: false, placeholder: "no noise" })),
        explained("knowledge", "Knowledge", field("knowledge", select("knowledge", choices.knowledge, knowledge))),
        field("slack", numberInput("slack", slack ?? "", { min: 1, required: false, placeholder: "waits for all" })),
        field("budget, s", numberInput("budget_s", budget, { min: 1, step: 10 })),
        field("seeds", numberInput("seeds", info.seeds, { min: 1, step: 1 })),
        field("target, %", numberInput("target", 100 * info.target, { min: 1, max: 100 })),
      ),
      policies.element,
      suggestions("mobilities", choices.mobility),
      suggestions("availabilities", choices.availability),
      suggestions("channels", choices.channel),
      suggestions("partitions", choices.partition),
      suggestions("aggregators", choices.aggregator),
    ),
    h("div", { class: "form-foot" }, error, button),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = "";
    button.disabled = true;
    try {
      await start(raceDocument(form, policies.lines, law.line(), kept.spec));
    } catch (problem) {
      error.textContent = problem.message;
      error.scrollIntoView({ block: "nearest" });
    } finally {
      button.disabled = false;
    }
  });
  const kept = { spec: {} }; // of the race that is cloned, what the form has no fields for
  const rest = h("p", { class: "note", hidden: true });
  form.querySelector(".form-foot").prepend(rest);
  function fill(race) {
    kept.spec = race.spec;
    policies.lines = race.policies.map(({ line }) => line);
    policies.fillChips();
    law.set(race.spec.cell.law ?? "density");
    for (const [name, value] of Object.entries(formValues(race))) form.elements.namedItem(name).value = value ?? "";
    rest.hidden = false;
    rest.textContent = "Like the cloned race in all that has no field here.";
    form.elements.namedItem("radius_m").focus();
    form.scrollIntoView({ block: "nearest" });
  }
  return { element: form, fill };
}

/** The fields of the form by name, for a race that there is. */
function formValues({ spec, seeds, target }) {
  const { cell, devices, task } = spec;
  return {
    radius_m: cell.radius_m,
    bandwidth_mhz: cell.bandwidth_hz / 1e6,
    count: devices.count,
    channel: cell.channel,
    rate: cell.rate,
    shadowing_db: cell.shadowing_db,
    fading: cell.fading,
    csi_error_db: cell.csi_error_db,
    mobility: devices.mobility,
    availability: devices.availability,
    data: task.data,
    partition: task.partition,
    epochs: task.epochs,
    aggregator: task.aggregator,
    profiles: spec.profiles,
    epsilon: spec.epsilon,
    knowledge: spec.knowledge,
    slack: spec.slack,
    budget_s: spec.budget_s,
    seeds: seeds.length,
    target: Number((100 * target).toPrecision(12)),
  };
}

/** Numbers as written: an empty or odd one goes to the server as text, which says what is wrong with it. */
function raceDocument(form, policies, law, kept) {
  const value = (name) => form.elements.namedItem(name).value.trim();
  const number = (name, scale = 1) =>
    value(name) !== "" && Number.isFinite(Number(value(name)))
      ? Number((Number(value(name)) * scale).toPrecision(12))
      : value(name);
  const { policy, seed, ...rest } = kept; // beside the spec
  const unlimited = value("budget_s") === "" && rest.rounds;
  return {
    spec: {
      ...rest,
      ...(unlimited ? {} : { budget_s: number("budget_s") }),
      knowledge: value("knowledge"),
      slack: value("slack") === "" ? null : number("slack"),
      profiles: value("profiles"),
      epsilon: value("epsilon") === "" ? null : number("epsilon"),
      cell: {
        ...rest.cell,
        radius_m: number("radius_m"),
        bandwidth_hz: number("bandwidth_mhz", 1e6),
        channel: value("channel"),
        rate: value("rate"),
        shadowing_db: number("shadowing_db"),
        fading: value("fading"),
        law,
        csi_error_db: number("csi_error_db"),
      },
      devices: { ...rest.devices, count: number("count"), mobility: value("mobility"), availability: value("availability") },
      task: {
        ...rest.task,
        data: value("data"),
        partition: value("partition"),
        epochs: number("epochs"),
        aggregator: value("aggregator"),
      },
    },
    policies,
    seeds: number("seeds"),
    target: number("target", 0.01),
  };
}
