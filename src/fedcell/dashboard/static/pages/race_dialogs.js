// Questions and answers about one race: its name and note, what to delete, and its command.

import { get } from "../lib/client.js";
import { h } from "../lib/dom.js";
import { plural } from "../lib/format.js";

/** A dialog that answers with the value of the button that closed it; empty for Escape. */
function ask(title, body, buttons) {
  const dialog = h(
    "dialog",
    { class: "question", "aria-label": title },
    h("h2", {}, title),
    body,
    h(
      "form",
      { method: "dialog", class: "actions" },
      buttons.map(([value, text, kind]) => h("button", { value, class: kind ?? "" }, text)),
    ),
  );
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.showModal();
  });
}

/** A name and a note for a race: {name, note}, or null where nothing shall change. */
export async function askWords(race, limits) {
  const name = h("input", { type: "text", value: race.name, maxlength: limits.name_characters, autofocus: true });
  const note = h("textarea", { rows: 4, maxlength: limits.note_characters, value: race.note });
  const body = h(
    "div",
    { class: "form-body" },
    h("label", { class: "field" }, h("span", { class: "field-label" }, "name"), name),
    h("label", { class: "field" }, h("span", { class: "field-label" }, "note"), note),
  );
  const answer = await ask("Name and note", body, [
    ["save", "Save", "primary"],
    ["", "Cancel"],
  ]);
  return answer === "save" ? { name: name.value.trim(), note: note.value.trim() } : null;
}

/** How many runs a race has, and how many stay because something else has them too. */
async function runsOf(race) {
  const { runs, shared } = await get(`api/races/${race.id}/runs`);
  if (!shared) return `The race has ${plural(runs, "run")}, which nothing else in this results file has.`;
  return `The race has ${plural(runs, "run")}; ${shared} of them also ${shared > 1 ? "belong" : "belongs"} to another race or a tournament and ${shared > 1 ? "stay" : "stays"} in any case.`;
}

/** Delete a race: "runs" with its runs, "race" without them, empty for no. */
export async function askDelete(race) {
  const body = h("p", {}, `${await runsOf(race)} Deleted runs cannot be brought back.`);
  return ask("Delete this race?", body, [
    ["runs", "Delete race and runs", "bad"],
    ["race", "Delete race, keep runs"],
    ["", "Cancel"],
  ]);
}

/** Compute a race again: whether. */
export async function askRerun(race) {
  const body = h(
    "p",
    {},
    `${await runsOf(race)} Those that it alone has are deleted and computed again from the first round. `,
    "The same version of fedcell gives the same result.",
  );
  return (
    (await ask("Run this race again?", body, [
      ["yes", "Run again", "primary"],
      ["", "Cancel"],
    ])) === "yes"
  );
}

/** The command that runs a race again, to copy. */
export async function showCommand(race) {
  const { command, toml } = await get(`api/races/${race.id}/command`);
  const copied = h("small", { class: "muted", role: "status" });
  const part = (text, label) =>
    h(
      "div",
      { class: "command" },
      h("pre", { tabindex: "0", role: "region", "aria-label": label }, text),
      h(
        "button",
        {
          type: "button",
          class: "small",
          onclick: async () => {
            try {
              await navigator.clipboard.writeText(text);
              copied.textContent = "copied";
            } catch {
              copied.textContent = "the browser does not allow it; select the text";
            }
          },
        },
        "Copy",
      ),
    );
  const body = h(
    "div",
    { class: "form-body" },
    part(command, "Command"),
    toml && h("p", { class: "muted" }, "with the file ", h("code", {}, "race.toml"), ":"),
    toml && part(toml, "race.toml"),
    copied,
  );
  await ask("As command line", body, [["", "Close", "primary"]]);
}
