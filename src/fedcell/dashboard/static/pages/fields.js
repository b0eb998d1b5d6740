// Stored runs by their fields: accuracy against any of them as lines, or of any two as a heat map.

import { LineChart } from "../charts/chart.js";
import { field, h, scroller, segmented, setOptions } from "../lib/dom.js";
import { percent, plural, significant } from "../lib/format.js";

const VIEWS = [
  ["lines", "lines"],
  ["map", "heat map"],
];
const VALUES = [
  ["best_accuracy", "best accuracy"],
  ["last_accuracy", "last accuracy"],
];

const text = (value) => (value === null || value === undefined ? "none" : String(value));
const valueOf = (run, name) => (name === "policy" ? run.policy : run.differs?.[name]);
const short = (name) => name.split(".").pop();

/** All values of a field, numbers by size. */
function valuesOf(runs, name) {
  const found = new Map(runs.map((run) => [text(valueOf(run, name)), valueOf(run, name)]));
  return [...found.values()].sort((a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : text(a) < text(b) ? -1 : 1,
  );
}

/** The mean of what the runs of a pair of values reached, and of how many it is. */
export function meanOf(runs, pairs, value) {
  const found = runs
    .filter((run) => pairs.every(([name, wanted]) => text(valueOf(run, name)) === text(wanted)))
    .map((run) => run[value])
    .filter(Number.isFinite);
  return { mean: found.length ? found.reduce((a, b) => a + b, 0) / found.length : null, n: found.length };
}

export class FieldsView {
  constructor() {
    const draw = () => this.draw();
    this.view = "lines";
    this.x = h("select", { "aria-label": "Field across", onchange: draw });
    this.y = h("select", { "aria-label": "Field down", onchange: draw });
    this.value = h("select", { "aria-label": "What is shown", onchange: draw });
    setOptions(this.value, VALUES);
    const byView = segmented("Show as", VIEWS, this.view, (view) => {
      this.view = view;
      draw();
    });
    this.note = h("p", { class: "muted" });
    this.plot = h("div", { class: "plot" });
    this.table = scroller("Accuracy by two fields", { class: "heat" });
    this.element = h(
      "section",
      { class: "card", "aria-label": "Fields", hidden: true },
      h(
        "div",
        { class: "card-head" },
        h("h2", {}, "Accuracy against a field"),
        h("div", { class: "filters" }, field("across", this.x), field("by", this.y), field("value", this.value), byView.element),
      ),
      this.note,
      this.plot,
      this.table,
    );
    this.chart = new LineChart(this.plot, {
      label: "Mean accuracy against a field of the runs; the heat map is the same as a table",
      xLabel: "",
      yLabel: "accuracy, %",
      yFormat: (value) => significant(100 * value, 4),
      tipFormat: (value) => percent(value),
    });
  }

  /** The runs to show; those that failed or have no round are left out. */
  update(runs) {
    this.runs = runs.filter((run) => run.rounds > 0);
    const names = [...new Set(this.runs.flatMap((run) => Object.keys(run.differs ?? {})))].filter((name) => !["policy", "seed"].includes(name));
    const varied = names.filter((name) => valuesOf(this.runs, name).length > 1);
    this.element.hidden = !varied.length;
    if (!varied.length) return;
    this.names = [...varied, "policy"];
    const options = this.names.map((name) => [name, short(name)]);
    setOptions(this.x, options, this.x.value || varied[0]);
    setOptions(this.y, options, this.y.value || "policy");
    this.draw();
  }

  draw() {
    const [x, y, value] = [this.x.value, this.y.value, this.value.value];
    const xs = valuesOf(this.runs, x);
    const ys = valuesOf(this.runs, y);
    const lines = this.view === "lines" && xs.every((one) => typeof one === "number") && x !== y;
    this.plot.hidden = !lines;
    this.table.hidden = lines;
    const rest = this.names.filter((name) => name !== x && name !== y && valuesOf(this.runs, name).length > 1).map(short);
    const over = ["seeds", ...rest].join(", ");
    const why = this.view === "lines" && !lines ? ` ${short(x)} is not a number, so this is the heat map.` : "";
    this.note.textContent = `${plural(this.runs.length, "run")}; means over ${over}.${why}`;
    if (lines) this.drawLines(x, y, value, xs, ys);
    else this.drawMap(x, y, value, xs, ys);
  }

  drawLines(x, y, value, xs, ys) {
    const series = ys.map((one) => {
      const run = this.runs.find((other) => text(valueOf(other, y)) === text(one));
      const style = y === "policy" ? run : { colour: "#000000", dash: ["-", "--", "-.", ":"][ys.indexOf(one) % 4] };
      const means = xs.map((at) => meanOf(this.runs, [[x, at], [y, one]], value).mean);
      return { name: text(one), colour: style.colour, dash: style.dash, x: xs, y: means, points: true };
    });
    this.chart.options.xLabel = short(x);
    this.chart.update({ series, yMax: 1 });
  }

  /** The deeper the colour, the higher; every cell says its number. */
  drawMap(x, y, value, xs, ys) {
    const cells = ys.map((down) => xs.map((across) => meanOf(this.runs, [[x, across], [y, down]], value)));
    const means = cells.flat().map((cell) => cell.mean).filter(Number.isFinite);
    const [least, most] = [Math.min(...means), Math.max(...means)];
    const shade = (mean) => (most > least ? (mean - least) / (most - least) : 0.5);
    const cell = ({ mean, n }) =>
      h(
        "td",
        {
          class: "num",
          title: plural(n, "run"),
          style: Number.isFinite(mean) ? { background: `rgb(43 149 221 / ${Math.round(4 + 41 * shade(mean))}%)` } : {},
        },
        percent(mean),
      );
    this.table.replaceChildren(
      h(
        "table",
        {},
        h("caption", {}, `${VALUES.find(([name]) => name === value)[1]}: ${short(x)} across, ${short(y)} down`),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, short(y)), xs.map((one) => h("th", { scope: "col", class: "num" }, text(one))))),
        h(
          "tbody",
          {},
          ys.map((one, i) => h("tr", {}, h("th", { scope: "row" }, text(one)), cells[i].map(cell))),
        ),
      ),
    );
  }
}
