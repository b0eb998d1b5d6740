// The form of a race: the cell, the task, the policies, the seeds.

import { swatch } from "../charts/ink.js";
import { field, h, icon, setOptions } from "../lib/dom.js";
import { explained } from "./glossary.js";
import { lawChoice } from "./law.js";

const numberInput = (name, value, extra = {}) =>
  h("input", { type: "number", name, value, required: true, step: "any", ...extra });

/** The input of a field of the spec, by what the server says of it; its name is the field's path. */
function inputOf(info, one) {
  const value = valueOf(one, info.defaults);
  if (one.kind === "truth" || !one.others) {
    const element = h("select", { name: one.path, title: one.help });
    const choices = one.kind === "truth" ? ["true", "false"] : one.choices;
    setOptions(
      element,
      choices.map((choice) => [choice, choice]),
      String(value),
    );
    return [element];
  }
  const common = { name: one.path, value: value ?? "", title: one.help, required: one.required };
  if (one.kind === "number" || one.kind === "whole") {
    const limits = { min: scaled(one, one.least), max: scaled(one, one.most), step: one.step ?? "any" };
    const given = Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== null));
    return [h("input", { type: "number", ...common, ...given, placeholder: one.required ? "" : one.default })];
  }
  const list = one.choices.length ? `choices-${one.path}` : undefined;
  const options = one.choices.map((choice) => h("option", { value: choice }));
  const text = h("input", { type: "text", ...common, list, autocomplete: "off", spellcheck: "false" });
  return list ? [text, h("datalist", { id: list }, options)] : [text];
}

const labelled = (info, one) => {
  const [input, ...lists] = inputOf(info, one);
  const element = field(one.unit ? `${one.label}, ${one.unit}` : one.label, input);
  return [one.topic ? explained(one.path.split(".").at(-1), one.topic, element) : element, ...lists];
};

const scaled = (one, value) => (typeof value === "number" ? Number((value / one.scale).toPrecision(12)) : null);

/** A field's value in the document of a spec, as its input has it. */
function valueOf(one, spec) {
  const value = one.path.split(".").reduce((part, name) => part?.[name], spec);
  return typeof value === "number" ? scaled(one, value) : value;
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
  const fieldset = (...sections) =>
    sections
      .flatMap((section) => info.fields.filter(({ path }) => (path.includes(".") ? path.split(".")[0] : "") === section))
      .flatMap((one) => labelled(info, one));
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
        ...fieldset("cell"),
        ...law.fields,
        ...fieldset("devices"),
      ),
      group(
        "Task",
        ...fieldset("task", ""),
        field("seeds", numberInput("seeds", info.seeds, { min: 1, step: 1 })),
        field("target, %", numberInput("target", 100 * info.target, { min: 1, max: 100 })),
      ),
      policies.element,
    ),
    h("div", { class: "form-foot" }, error, button),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = "";
    button.disabled = true;
    try {
      await start(raceDocument(info, form, policies.lines, law.line(), kept.spec));
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
    for (const one of info.fields) form.elements.namedItem(one.path).value = valueOf(one, race.spec) ?? "";
    form.elements.namedItem("seeds").value = race.seeds.length;
    form.elements.namedItem("target").value = Number((100 * race.target).toPrecision(12));
    rest.hidden = false;
    rest.textContent = "Like the cloned race in all that has no field here.";
    form.elements.namedItem(info.fields[0].path).focus();
    form.scrollIntoView({ block: "nearest" });
  }
  return { element: form, fill };
}

/** Numbers as written: an odd one goes to the server as text, which says what is wrong with it. */
function raceDocument(info, form, policies, law, kept) {
  const { policy, seed, ...spec } = structuredClone(kept); // beside the spec
  const text = (name) => form.elements.namedItem(name).value.trim();
  const number = (name, scale = 1) =>
    text(name) !== "" && Number.isFinite(Number(text(name))) ? Number((Number(text(name)) * scale).toPrecision(12)) : text(name);
  for (const one of info.fields) {
    const parents = one.path.split(".");
    const name = parents.pop();
    const part = parents.reduce((outer, parent) => (outer[parent] ??= {}), spec);
    const numeric = one.kind === "number" || one.kind === "whole";
    if (text(one.path) === "" && !one.required) part[name] = null;
    else if (one.kind === "truth") part[name] = text(one.path) === "true";
    else part[name] = numeric ? number(one.path, one.scale) : text(one.path);
  }
  if (spec.budget_s === "" && spec.rounds) delete spec.budget_s; // unlimited
  spec.cell.law = law;
  return { spec, policies, seeds: number("seeds"), target: number("target", 0.01) };
}
