// Accuracy against time or energy with its tables beside it: the race and the comparison of stored runs look the same.

import { h, redraw, scroller, segmented } from "../lib/dom.js";
import { fixed, percent, plural, seconds, significant } from "../lib/format.js";
import { makeTable } from "../lib/table.js";
import { LineChart, swatch } from "./chart.js";

const MINUS = "–";
const AXES = [
  ["time", "time"],
  ["energy", "energy"],
];
const X_LABELS = { time: "simulated wall-clock time, s", energy: "energy spent by all devices, J" };

/** When the target was reached, as the command line says it: 171 s, never (1/5); not yet while runs are under way. */
function reached(time, soFar) {
  if (!time || !time.n) return MINUS;
  const when = Number.isFinite(time.median_s) ? `${fixed(time.median_s, 0)} s` : soFar ? "not yet" : "never";
  return time.reached === time.n ? when : `${when} (${time.reached}/${time.n})`;
}

/** What it cost to reach the target; unknown where real devices trained. */
function cost(energy, soFar) {
  if (!energy || !energy.n) return MINUS;
  const when = Number.isFinite(energy.median_j)
    ? `${significant(energy.median_j, 4)} J`
    : 2 * energy.reached > energy.n
      ? "unknown"
      : soFar
        ? "not yet"
        : "never";
  return energy.reached === energy.n ? when : `${when} (${energy.reached}/${energy.n})`;
}

/** A mean with half its 95 % interval, such as 87.41 ± 0.62. */
function mean(document, scale = 1, digits = 2) {
  const { mean: value, half } = document ?? {};
  if (!Number.isFinite(value)) return MINUS;
  return [
    fixed(scale * value, digits),
    Number.isFinite(half) ? h("span", { class: "half" }, ` ± ${fixed(scale * half, digits)}`) : null,
  ];
}

/** What went wrong with a policy's runs, in a small line below its name; nothing if nothing did. */
function trouble(row) {
  const parts = [
    row.diverged > 0 && `diverged: ${row.diverged} of ${plural(row.seeds, "seed")}`,
    row.failed > 0 && `failed: ${plural(row.failed, "run")}`,
  ].filter(Boolean);
  return parts.length ? h("small", { class: "trouble" }, parts.join(", ")) : null;
}

function accuracyColumns(target, name, soFar, by) {
  return [
    { head: "policy", left: true, cell: (row) => [name(row), trouble(row)] },
    {
      head: "best, %",
      title: "highest accuracy of a run, mean over seeds ± 95 % interval",
      cell: (row) => mean(row.best, 100),
    },
    {
      head: "last, %",
      title: "accuracy of a run's last model, mean over seeds ± 95 % interval",
      cell: (row) => mean(row.last, 100),
    },
    {
      head: target ? `to ${significant(100 * target, 3)} %` : "to target",
      title: `${by} to this accuracy, median over seeds; (1/5): reached with 1 of 5 seeds`,
      cell: (row) => (by === "energy" ? cost(row.energy_to_target, soFar) : reached(row.time_to_target, soFar)),
    },
  ];
}

function roundColumns(name, by) {
  const cost =
    by === "energy"
      ? { head: "J in all", title: "joules that all devices spend in a run", cell: (row) => mean(row.joules, 1, 1) }
      : { head: "s per round", title: "seconds per round", cell: (row) => mean(row.round_s) };
  return [
    { head: "policy", left: true, cell: name },
    { head: "devices", title: "scheduled devices per round", cell: (row) => mean(row.devices) },
    cost,
    { head: "rounds", title: "rounds of a run", cell: (row) => mean(row.rounds, 1, 1) },
  ];
}

/** Chart, legend and tables of a /curves document in a host element. */
export class CurvesView {
  /** `asked()` is called when the curves are wanted against the other axis, `by`: time or energy. */
  constructor(host, label, asked) {
    this.by = "time";
    this.byAxis = segmented("Accuracy against", AXES, this.by, (value) => {
      this.by = value;
      asked();
    });
    this.legend = h("div", { class: "legend" });
    this.bands = h("input", {
      type: "checkbox",
      checked: true,
      onchange: () => host.classList.toggle("no-bands", !this.bands.checked),
    });
    const plot = h("div", { class: "plot" });
    this.tables = scroller("Tables of the curves", { class: "tables" });
    this.what = h("span", {});
    this.verdicts = h("ul", { class: "verdicts" });
    host.classList.add("curves");
    host.append(
      h("div", { class: "curves-chart" }, h("div", { class: "curves-head" }, this.legend, this.byAxis.element), plot),
      h("div", { class: "curves-side" }, this.tables),
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

  /** styles: [{line, colour, dash}] in order, known before the first round; curves: the document or null. */
  update(styles, curves, { target = null, endS = null, endJ = null, seeds = null, empty = "" } = {}) {
    const byLine = new Map((curves?.policies ?? []).map((policy) => [policy.line, policy]));
    const series = styles.map((style) => {
      const policy = byLine.get(style.line);
      return {
        name: style.line,
        colour: style.colour,
        dash: style.dash,
        step: true,
        x: policy?.clock_s ?? policy?.spent_j ?? [],
        y: policy?.mean ?? [],
        low: policy?.low,
        high: policy?.high,
        seeds: policy?.seeds?.map((seed) => ({ x: seed.clock_s ?? seed.spent_j, y: seed.accuracy })),
      };
    });
    const values = series.flatMap((line) => [line.y, ...(line.seeds ?? []).map((seed) => seed.y)].flat()).filter(Number.isFinite);
    const lowest = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
    // Until the answer is there, what is shown is still against the other axis.
    const axis = curves?.policies?.some((policy) => policy.spent_j) ? "energy" : "time";
    const end = axis === "energy" ? endJ : endS;
    const xMax = Number.isFinite(end) ? end : undefined;
    this.chart.options.xLabel = X_LABELS[axis];
    if (axis === "energy" && !values.length && curves?.policies?.length) empty = "What these runs spent is not known.";
    this.chart.update({ series, xMin: 0, xMax, yMin: Math.floor(10 * Math.min(lowest, 0.9)) / 10, yMax: 1, empty });
    const [few, many] = [series.some((line) => line.seeds), series.some((line) => line.low)];
    this.what.textContent = few ? (many ? "95 % bands; few seeds: each one" : "each seed, thin") : "95 % band of the mean";
    this.fillTables(styles, curves, target, seeds);
    this.fillVerdicts(curves?.verdicts ?? []);
  }

  /** While no seed is finished by all policies, the table is of the same moment in all of them. */
  fillTables(styles, curves, target, allSeeds) {
    const rows = curves?.table ?? [];
    const soFar = Number.isFinite(curves?.so_far_s) ? curves.so_far_s : null;
    const byPolicy = new Map(rows.map((row) => [row.policy, row]));
    const all = styles.map((style) => ({ ...byPolicy.get(style.line), policy: style.line, style }));
    const name = (row) =>
      h(
        "span",
        { class: "policy" },
        swatch(row.style.colour, row.style.dash),
        h("span", { class: "policy-line", title: row.policy }, row.policy),
      );
    const counts = rows.map((row) => row.seeds ?? 0).filter((count) => count > 0 || !rows.some((row) => row.failed));
    const [fewest, seeds] = [Math.min(...counts), Math.max(0, ...counts)];
    const some = fewest < seeds ? `${fewest} to ` : allSeeds > seeds ? `${seeds} of ` : "";
    const moment = soFar === null ? "" : ` · so far, at ${seconds(soFar, 3)}`;
    const of = seeds ? `${moment} · ${some}${plural(Math.max(seeds, allSeeds ?? 0), "seed")}${seeds > 1 ? ", ± 95 %" : ""}` : "";
    const props = (row) => ({
      "data-policy": row.policy,
      onpointerenter: () => this.chart.focus(row.policy),
      onpointerleave: () => this.chart.focus(null),
    });
    this.tables.replaceChildren(
      makeTable(`Accuracy${of}`, accuracyColumns(target, name, soFar !== null, this.by), all, props),
      makeTable(`Rounds${of}`, roundColumns(name, this.by), all, props),
    );
    const legend = (style) =>
      h(
        "span",
        {
          class: "key",
          onpointerenter: () => this.chart.focus(style.line),
          onpointerleave: () => this.chart.focus(null),
        },
        swatch(style.colour, style.dash),
        style.line,
      );
    redraw(
      this.legend,
      styles.map((style) => [style.line, style.colour, style.dash]),
      () => [...styles.map(legend), h("label", {}, this.bands, this.what)],
    );
  }

  fillVerdicts(sentences) {
    this.verdicts.replaceChildren(
      ...sentences.map((sentence) => h("li", {}, typeof sentence === "string" ? sentence : sentence.text)),
    );
  }
}
