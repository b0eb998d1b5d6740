// The link law of a plan or a race: a name and, where it has one, its number.

import { field, h, setOptions } from "../lib/dom.js";
import { explained } from "./glossary.js";

const LAWS = {
  density: { text: "one band, as in the paper" },
  blocks: { text: "resource blocks", number: "resource blocks", key: "count", usual: 15, scale: 1 },
  power: { text: "one band, total power" },
  dedicated: { text: "a line for each device" },
  ingress: { text: "own lines into one pipe", number: "server’s pipe, Mbit/s", key: "bits_per_s", usual: 10, scale: 1e6 },
};

/** Two fields; `line()` is what the server takes, `set(line)` chooses one. `changed` is told of every change. */
export function lawChoice(changed = () => {}) {
  const select = h("select", { name: "law", onchange: () => chosen(LAWS[select.value].usual) });
  setOptions(
    select,
    Object.entries(LAWS).map(([name, { text }]) => [name, `${name}: ${text}`]),
  );
  const number = h("input", { type: "number", name: "law_number", step: "any", min: 0, oninput: changed });
  const settingField = field("", number);
  settingField.hidden = true;

  function show(value) {
    const { number: label } = LAWS[select.value];
    settingField.hidden = !label;
    settingField.firstChild.textContent = label ?? "";
    number.value = value ?? "";
  }
  function chosen(value) {
    show(value);
    changed();
  }
  function line() {
    const { key, scale } = LAWS[select.value];
    if (!key) return select.value;
    const text = number.value.trim();
    return `${select.value}:${key}=${text === "" ? "" : Number((Number(text) * scale).toPrecision(12))}`;
  }
  function set(text) {
    const [name, rest = ""] = text.split(":");
    if (!LAWS[name]) return;
    select.value = name;
    const given = rest.split("=")[1] ?? "";
    show(given === "" ? "" : Number(given) / (LAWS[name].scale ?? 1));
  }
  return { fields: [explained("law", "Link law", field("link law", select)), settingField], line, set };
}
