// The parts of the Race page that are made of one race: its head with its buttons, its line in the queue.

import { query } from "../lib/client.js";
import { h, icon } from "../lib/dom.js";
import { when } from "../lib/format.js";

export const ENDED = ["stopped", "done", "failed", "interrupted", "damaged"];
export const ACTIONS = {
  pause: { states: ["running"], text: "Pause", icon: "pause" },
  continue: { states: ["paused"], text: "Continue", icon: "play" },
  stop: { states: ["running", "paused", "queued"], text: "Stop", icon: "stop" },
  resume: { states: ["interrupted", "stopped", "failed"], text: "Resume", icon: "play" },
};
const MORE = [
  ["words", "Name and note"],
  ["clone", "Clone"],
  ["rerun", "Rerun", ENDED.filter((state) => state !== "damaged")],
  ["delete", "Delete", [...ENDED, "queued"]],
  ["command", "As command line"],
];

/** Done so far, 0 to 1: time where there is a budget, rounds otherwise. */
export function progress(race) {
  const { budget_s: budget, rounds } = race.spec;
  if (!race.runs.length) return 0;
  const of = (run) =>
    ["done", "failed"].includes(run.state)
      ? 1
      : Math.min(1, Number.isFinite(budget) ? (run.clock_s ?? 0) / budget : (run.rounds ?? 0) / rounds);
  return race.runs.reduce((sum, run) => sum + of(run), 0) / race.runs.length;
}

/** The state, as a word in a frame. */
function pill(race) {
  const waiting = race.state === "queued" && race.position ? ` · ${race.position}` : "";
  return h("span", { class: `pill ${race.state}`, "data-state": race.state }, race.state + waiting);
}

/** Before there is any race. */
export function headOfNone() {
  return [
    h("h1", {}, "Which policy learns fastest?"),
    h(
      "p",
      { class: "muted race-spec" },
      "Every policy has the same devices, channels, data and batches; the only difference is who trains, with how much of the band.",
    ),
  ];
}

/** Title, state, what can be done and downloaded; `act(race, action)` does it. */
export function headOf(race, { finished, begun, axis }, act) {
  const buttons = Object.entries(ACTIONS)
    .filter(([, action]) => action.states.includes(race.state) && !race.elsewhere)
    .map(([name, action]) =>
      h(
        "button",
        {
          type: "button",
          "data-action": name,
          class: name === "resume" ? "primary" : "",
          onclick: () => act(race, name),
        },
        icon(action.icon),
        action.text,
      ),
    );
  const more = ([name, text]) =>
    h("button", { type: "button", class: "small", "data-action": name, onclick: () => act(race, name) }, text);
  const link = (file) =>
    h(
      "a",
      {
        class: "button",
        href: query(`api/races/${race.id}/${file}`, file.startsWith("figure") ? axis : {}),
        download: `race-${file}`,
      },
      file.split(".")[1].toUpperCase(),
    );
  const links =
    finished &&
    h(
      "span",
      { class: "downloads", role: "group", "aria-label": "Download" },
      icon("down"),
      ["figure.svg", "figure.png", "data.csv", "data.json", "page.html"].map(link),
    );
  return [
    h("div", { class: "race-title" }, h("h1", {}, race.name || `Accuracy against ${axis.by ?? "time"}`), pill(race)),
    h(
      "div",
      { class: "actions" },
      buttons,
      begun && h("a", { class: "button", href: `#cell?run=${begun}` }, "Look into rounds"),
      links,
    ),
    h(
      "p",
      { class: "muted race-spec" },
      race.words,
      race.reason ? h("strong", { class: "reason" }, ` ${race.reason}`) : null,
      race.elsewhere ? " · running in another process, such as fedcell race in a terminal" : null,
    ),
    race.note && h("p", { class: "race-spec race-note" }, race.note),
    h("div", { class: "race-more", role: "group", "aria-label": "This race" }, MORE.filter(([, , states]) => (states ? states.includes(race.state) && !race.elsewhere : race.state !== "damaged")).map(more)),
  ];
}

/** A line of the list of races. */
export function queueItem(race, here, { act, open }) {
  const button = (name, text) =>
    h(
      "button",
      { type: "button", class: "small", "data-action": `${name}-${race.id}`, onclick: () => act(race, name) },
      text,
    );
  return h(
    "li",
    { class: here ? "here" : "", "data-race": race.id },
    h(
      "button",
      {
        type: "button",
        class: "queue-open",
        "data-action": `open-${race.id}`,
        "aria-current": here ? "true" : null,
        onclick: () => open(race.id),
      },
      pill(race),
      h(
        "span",
        { class: "queue-what" },
        race.name && h("strong", {}, `${race.name} · `),
        race.policies.map((policy) => policy.line).join(", "),
      ),
      h("small", {}, `${race.words} · ${when(race.created_unix_s)}`),
    ),
    race.state === "queued" && !race.elsewhere ? button("stop", "Cancel") : null,
    ["interrupted", "stopped"].includes(race.state) ? button("resume", "Resume") : null,
    ENDED.includes(race.state) ? button("forget", "Forget") : null,
  );
}
