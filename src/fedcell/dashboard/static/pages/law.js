// The link law of a plan or a race: a name and, where it has one, its first setting.

import { field, h, setOptions } from "../lib/dom.js";
import { explained } from "./glossary.js";

/** Two fields; `line()` is what the server takes, `set(line)` chooses one of `laws`. `changed` is told of every change. */
export function lawChoice(laws, changed = () => {}) {
  const first = Object.fromEntries(laws.map(({ name, settings }) => [name, settings[0]]));
  const select = h("select", { name: "law", onchange: () => chosen(first[select.value]) });
  setOptions(
    select,
    laws.map(({ name, label }) => [name, `${name}: ${label}`]),
  );
  const number = h("input", { type: "number", name: "law_number", step: "any", min: 0, oninput: changed });
  const settingField = field("", number);
  settingField.hidden = true;

  function show(value) {
    const setting = first[select.value];
    settingField.hidden = !setting;
    settingField.firstChild.textContent = setting?.label ?? "";
    number.value = value ?? "";
  }
  function chosen(setting) {
    show(setting && setting.usual / setting.scale);
    changed();
  }
  function line() {
    const setting = first[select.value];
    if (!setting) return select.value;
    const text = number.value.trim();
    return `${select.value}:${setting.name}=${text === "" ? "" : Number((Number(text) * setting.scale).toPrecision(12))}`;
  }
  function set(text) {
    const [name, rest = ""] = text.split(":");
    if (!laws.some((law) => law.name === name)) return;
    select.value = name;
    const given = rest.split("=")[1] ?? "";
    show(given === "" ? "" : Number(given) / (first[name]?.scale ?? 1));
  }
  return { fields: [explained("law", "Link law", field("link law", select)), settingField], line, set };
}
