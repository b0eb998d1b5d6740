// Accuracy against time or energy with its tables beside it: the race and the comparison of stored runs look the same.

import { h, redraw, scroller, segmented, throttle } from "../lib/dom.js";
import { fixed, percent, plural, seconds, significant } from "../lib/format.js";
import { Board } from "./board.js";
import { LineChart } from "./chart.js";
import { curveTables } from "./curve_tables.js";
import { swatch } from "./ink.js";
import { smoothed } from "./lines.js";
import { Replay } from "./replay.js";

const AXES = [
  ["time", "time"],
  ["energy", "energy"],
];
const X_LABELS = { time: "simulated wall-clock time, s", energy: "energy spent by all devices, J" };
const BOARD_MS = 120;
const MOST_SMOOTH = 0.1; // of the axis, as a time constant

/** Chart, legend, leader board and tables of a /curves document in a host element. */
export class CurvesView {
  /** `asked()` is called when the curves are wanted against the other axis, `by`: time or energy. */
  constructor(host, label, asked) {
    this.by = "time";
    this.hidden = new Set();
    this.shown = [[], null, {}];
    this.byAxis = segmented("Accuracy against", AXES, this.by, (value) => {
      this.by = value;
      asked();
    });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Curves; click to hide one" });
    this.bands = h("input", {
      type: "checkbox",
      checked: true,
      onchange: () => host.classList.toggle("no-bands", !this.bands.checked),
    });
    this.smooth = h("input", {
      type: "range",
      min: 0,
      max: 100,
      value: 0,
      "aria-label": "Smoothing",
      oninput: () => this.drawChart(),
    });
    this.replay = new Replay(() => this.seek());
    this.board = new Board();
    this.boardLater = throttle(BOARD_MS, () => this.drawBoard());
    const plot = h("div", { class: "plot" });
    this.tables = scroller("Tables of the curves", { class: "tables" });
    this.what = h("span", {});
    this.bandsKey = h("label", { class: "bands" }, this.bands, this.what);
    this.smoothKey = h("label", { class: "smooth" }, "smooth", this.smooth);
    this.verdicts = h("ul", { class: "verdicts" });
    host.classList.add("curves");
    host.append(
      h(
        "div",
        { class: "curves-chart" },
        h("div", { class: "curves-head" }, this.legend, this.byAxis.element),
        plot,
        this.replay.element,
      ),
      h("div", { class: "curves-side" }, this.board.element, this.tables),
      this.verdicts,
    );
    this.chart = new LineChart(plot, {
      label,
      xLabel: X_LABELS.time,
      yLabel: "test accuracy, %",
      yFormat: (value) => significant(100 * value, 4),
      tipFormat: (value) => percent(value),
      tipTitle: (value) => (this.by === "energy" ? `${significant(value, 4)} J` : `${fixed(value, 0)} s`),
    });
  }

  /** What to ask the server for, besides what is shown. */
  get axis() {
    return this.by === "time" ? {} : { by: this.by };
  }

  /** Another race is shown from now on: all of it. */
  reset() {
    this.replay.reset();
    this.chart.zoomed = null;
  }

  /**
   * styles: [{line, colour, dash}] in order, known before the first round; curves: the document or null. `live`: whether
   * more is to come.
   */
  update(styles, curves, options = {}) {
    this.shown = [styles, curves, options];
    const { target = null, seeds = null } = options;
    this.replay.setEnd(this.axisOf(curves) === "time" ? (this.common ?? this.lastX(curves)) : 0);
    this.drawChart();
    this.drawBoard();
    const focus = (policy) => this.chart.focus(policy);
    this.tables.replaceChildren(...curveTables(styles, curves, { target, seeds, by: this.by, focus }));
    this.fillLegend(styles);
    this.fillVerdicts(curves);
  }

  /** Until the answer is there, what is shown is still against the other axis. */
  axisOf(curves) {
    return curves?.policies?.some((policy) => policy.spent_j) ? "energy" : "time";
  }

  lastX(curves) {
    return Math.max(0, ...(curves?.policies ?? []).map((policy) => policy.clock_s?.at(-1) ?? 0));
  }

  /** While a race runs, the second that all policies have come to: none is shown ahead of the others. */
  get common() {
    const [, curves, { live = false }] = this.shown;
    const ends = (curves?.policies ?? []).map((policy) => policy.clock_s?.at(-1)).filter(Number.isFinite);
    return live && ends.length ? Math.min(...ends) : null;
  }

  /** The second that is shown; null for all there is. */
  get moment() {
    return this.replay.at ?? this.common;
  }

  /** The curves with every frame; the board as often as it can be read. */
  seek() {
    this.chart.seek(this.moment);
    this.boardLater();
  }

  drawBoard() {
    const [styles, curves, { target = null }] = this.shown;
    this.board.update(styles, curves, target, this.moment);
  }

  drawChart() {
    const [styles, curves, { target = null, endS = null, endJ = null, empty = "" }] = this.shown;
    const axis = this.axisOf(curves);
    const end = axis === "energy" ? endJ : endS;
    const whole = this.series(styles, curves, Number.isFinite(end) ? end : this.lastX(curves));
    const series = whole.filter((line) => !this.hidden.has(line.name));
    const values = whole.flatMap((line) => [line.y, ...(line.seeds ?? []).map((seed) => seed.y)].flat()).filter(Number.isFinite);
    const lowest = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
    if (this.chart.options.xLabel !== X_LABELS[axis]) this.chart.zoomed = null;
    this.chart.options.xLabel = X_LABELS[axis];
    const unknown = axis === "energy" && !values.length && curves?.policies?.length;
    this.chart.update({
      series,
      finish: target > 0 ? this.finish(series, curves, target, axis) : null,
      xMin: 0,
      xMax: Number.isFinite(end) ? end : undefined,
      yMin: Math.floor(10 * Math.min(lowest, 0.9)) / 10,
      yMax: 1,
      until: axis === "time" ? this.moment : null,
      empty: unknown ? "What these runs spent is not known." : empty,
    });
    const [few, many] = [series.some((line) => line.seeds), series.some((line) => line.low)];
    this.what.textContent = few ? (many ? "95 % bands; few seeds: each one" : "each seed, thin") : "95 % band of the mean";
  }

  series(styles, curves, end) {
    const byLine = new Map((curves?.policies ?? []).map((policy) => [policy.line, policy]));
    const constant = MOST_SMOOTH * (Number(this.smooth.value) / 100) ** 2 * end;
    return styles.map((style) => {
      const policy = byLine.get(style.line);
      const [x, y] = [policy?.clock_s ?? policy?.spent_j ?? [], policy?.mean ?? []];
      return {
        name: style.line,
        colour: style.colour,
        dash: style.dash,
        leads: Boolean(curves?.lead?.significant) && style.line === curves.lead.policy,
        step: !(constant > 0),
        x,
        y: smoothed(x, y, constant),
        raw: constant > 0 ? { x, y } : null,
        low: policy?.low,
        high: policy?.high,
        seeds: policy?.seeds?.map((seed) => ({ x: seed.clock_s ?? seed.spent_j, y: seed.accuracy })),
      };
    });
  }

  /** The line that all run for, and the mean time of each to it, of those whose median seed gets there: as the board has it. */
  finish(series, curves, target, axis) {
    const rows = new Map((curves?.table ?? []).map((row) => [row.policy, row]));
    const crossings = series.map(({ name, colour }) => {
      const row = rows.get(name);
      const [to, unit] = axis === "energy" ? [row?.energy_to_target, "j"] : [row?.time_to_target, "s"];
      const x = Number.isFinite(to?.[`median_${unit}`]) ? to[`mean_${unit}`] : null;
      const title = `${name}: ${axis === "energy" ? `${significant(x, 4)} J` : seconds(x, 3)}, mean of ${plural(to?.n ?? 0, "seed")}`;
      return { name, colour, x, title };
    });
    const percents = significant(100 * target, 3);
    return { y: target, label: `${percents} %`, crossings: crossings.filter(({ x }) => Number.isFinite(x)) };
  }

  fillLegend(styles) {
    const key = (style) => {
      const button = h(
        "button",
        {
          type: "button",
          class: "key",
          "data-action": `show-${style.line}`,
          "aria-pressed": String(!this.hidden.has(style.line)),
          title: "Show or hide",
          onclick: () => {
            if (!this.hidden.delete(style.line)) this.hidden.add(style.line);
            button.setAttribute("aria-pressed", String(!this.hidden.has(style.line)));
            this.drawChart();
          },
          onpointerenter: () => this.chart.focus(style.line),
          onpointerleave: () => this.chart.focus(null),
        },
        swatch(style.colour, style.dash),
        style.line,
      );
      return button;
    };
    redraw(
      this.legend,
      styles.map((style) => [style.line, style.colour, style.dash]),
      () => [...styles.map(key), this.bandsKey, this.smoothKey],
    );
  }

  fillVerdicts(curves) {
    const sentences = curves?.verdicts ?? [];
    const title = sentences.length ? [h("li", { class: "verdicts-on" }, `${curves.verdicts_on}:`)] : [];
    this.verdicts.replaceChildren(...title, ...sentences.map((sentence) => h("li", {}, sentence)));
  }
}
