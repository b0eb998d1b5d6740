// One race in a file of its own: what the Race page shows of it, without a server. dashboard/views/pages.py puts it together.

import { CurvesView } from "../charts/curves.js";
import { h } from "../lib/dom.js";

const { race, curves, command } = JSON.parse(document.getElementById("race").textContent);

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}

const body = h("div", {});
const view = new CurvesView(body, "Accuracy against simulated time or energy; the tables have the numbers", draw);

function draw() {
  view.update(race.policies, curves[view.by], {
    target: race.target,
    endS: race.spec.budget_s ?? null,
    endJ: race.spec.budget_j ?? null,
    seeds: race.seeds.length,
  });
}

document.getElementById("main").append(
  h(
    "section",
    { class: "card race-card", "aria-label": "The race" },
    h(
      "div",
      { class: "card-head" },
      h("h1", {}, race.name || "Which policy learns fastest?"),
      h("button", { type: "button", class: "small", onclick: toggleTheme }, "Light or dark"),
    ),
    h("p", { class: "muted race-spec" }, race.words),
    race.note && h("p", { class: "race-note" }, race.note),
    body,
    h("p", { class: "note" }, "The same race again: ", h("code", {}, command)),
  ),
);
draw();
document.addEventListener("keydown", (event) => {
  if (event.key !== " " || event.target.closest("button, input, select")) return;
  event.preventDefault();
  view.replay.toggle();
});
