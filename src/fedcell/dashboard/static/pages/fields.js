// Stored runs by their fields: accuracy against any of them as lines, or of any two as a heat map. The server averages.

import { LineChart } from "../charts/chart.js";
import { get, latest, query } from "../lib/client.js";
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
const short = (name) => name.split(".").pop();

export class FieldsView {
  constructor() {
    const load = () => this.load();
    this.ask = latest((asked) => get(query("api/means", asked)));
    this.view = "lines";
    this.x = h("select", { "aria-label": "Field across", onchange: load });
    this.y = h("select", { "aria-label": "Field down", onchange: load });
    this.value = h("select", { "aria-label": "What is shown", onchange: load });
    setOptions(this.value, VALUES);
    const byView = segmented("Show as", VIEWS, this.view, (view) => {
      this.view = view;
      if (this.answer) this.draw(this.answer);
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

  /** The means of the runs that these filters, or keys, leave; those that failed or have no round are left out. */
  update(asked) {
    const key = JSON.stringify(asked);
    if (key === this.asked) return;
    this.asked = key;
    this.given = asked;
    this.load();
  }

  /** There may be other runs now. */
  stale() {
    this.asked = null;
  }

  async load() {
    const asked = { ...this.given, across: this.x.value, down: this.y.value || "policy", value: this.value.value };
    try {
      const answer = await this.ask(asked);
      if (answer) this.draw(answer);
    } catch (error) {
      if (!this.x.value) return this.say(error.message);
      this.x.value = this.y.value = ""; // fields of other runs
      return this.load();
    }
  }

  say(words) {
    this.element.hidden = false;
    this.note.textContent = words;
    this.plot.hidden = this.table.hidden = true;
  }

  draw(answer) {
    this.element.hidden = !answer.fields.length;
    if (!answer.fields.length) return;
    const { across, down, fields, x, y } = (this.answer = answer);
    const options = fields.map((name) => [name, short(name)]);
    setOptions(this.x, options, across);
    setOptions(this.y, options, down);
    const lines = this.view === "lines" && x.every((one) => typeof one === "number") && across !== down;
    this.plot.hidden = !lines;
    this.table.hidden = lines;
    const over = ["seeds", ...fields.filter((name) => name !== across && name !== down).map(short)].join(", ");
    const why = this.view === "lines" && !lines ? ` ${short(across)} is not a number, so this is the heat map.` : "";
    this.note.textContent = `${plural(answer.runs, "run")}; means over ${over}.${why}`;
    if (lines) this.drawLines(answer);
    else this.drawMap(answer);
  }

  drawLines({ across, x, y, styles, means }) {
    const series = y.map((one, i) => {
      const style = styles[i] ?? { colour: "#000000", dash: ["-", "--", "-.", ":"][i % 4] };
      return { name: text(one), colour: style.colour, dash: style.dash, x, y: means[i], points: true };
    });
    this.chart.options.xLabel = short(across);
    this.chart.update({ series, yMax: 1 });
  }

  /** The deeper the colour, the higher; every cell says its number. */
  drawMap({ across, down, x, y, means, counts }) {
    const known = means.flat().filter(Number.isFinite);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const shade = (mean) => (most > least ? (mean - least) / (most - least) : 0.5);
    const cell = (mean, n) =>
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
        h("caption", {}, `${VALUES.find(([name]) => name === this.value.value)[1]}: ${short(across)} across, ${short(down)} down`),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, short(down)), x.map((one) => h("th", { scope: "col", class: "num" }, text(one))))),
        h(
          "tbody",
          {},
          y.map((one, i) => h("tr", {}, h("th", { scope: "row" }, text(one)), means[i].map((mean, j) => cell(mean, counts[i][j])))),
        ),
      ),
    );
  }
}
