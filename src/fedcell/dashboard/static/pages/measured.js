// Predicted against measured: when each device of a real round finished, beside when the plan said it would.

import { LineChart } from "../charts/chart.js";
import { get, query } from "../lib/client.js";
import { h, scroller } from "../lib/dom.js";
import { seconds, significant } from "../lib/format.js";
import { makeTable } from "../lib/table.js";

const MOST_ROUNDS = 24;

/** As the plan said it then, or as the world is computed anew. */
const predictedOf = (device) => device.predicted_finish_s ?? device.finish_s;

/** Evenly over the run. */
function some(count) {
  const n = Math.min(count, MOST_ROUNDS);
  return Array.from({ length: n }, (_, i) => 1 + Math.round((i * (count - 1)) / Math.max(1, n - 1)));
}

async function pairsOf(run) {
  const path = (round) => query(`api/runs/${run.key}/rounds/${round}`, { store: run.store });
  const rounds = await Promise.all(some(run.rounds ?? 0).map((round) => get(path(round))));
  return rounds.flatMap((round) =>
    round.devices
      .filter((device) => Number.isFinite(device.measured_finish_s) && Number.isFinite(predictedOf(device)))
      .map((device) => ({
        round: round.round,
        device: device.index,
        predicted: predictedOf(device),
        measured: device.measured_finish_s,
      })),
  );
}

export class MeasuredView {
  constructor() {
    const plot = h("div", { class: "plot" });
    this.side = scroller("Finish times", { class: "listed" });
    this.said = h("p", { class: "muted" });
    this.element = h(
      "section",
      { class: "card", "aria-label": "Measured", hidden: true },
      h("h2", {}, "Predicted against measured"),
      this.said,
      h(
        "div",
        { class: "curves" },
        h("div", { class: "curves-chart" }, plot),
        h("div", { class: "curves-side" }, this.side),
      ),
    );
    this.chart = new LineChart(plot, {
      label: "Measured against predicted finish time of each device; the table has the numbers",
      xLabel: "predicted finish, s",
      yLabel: "measured finish, s",
    });
  }

  async update(runs) {
    this.element.hidden = runs.length === 0;
    const key = runs.map((run) => run.key).join();
    if (!runs.length || key === this.shown) return;
    this.shown = key;
    try {
      const pairs = (await Promise.all(runs.map(pairsOf))).flat();
      if (key === this.shown) this.draw(runs, pairs);
    } catch (error) {
      this.said.textContent = error.message;
    }
  }

  draw(runs, pairs) {
    if (!pairs.length) {
      this.element.hidden = true; // a run without measured times
      return;
    }
    const most = 1.05 * Math.max(...pairs.flatMap(({ predicted, measured }) => [predicted, measured]));
    const errors = pairs
      .map(({ predicted, measured }) => Math.abs(measured - predicted) / predicted)
      .sort((a, b) => a - b);
    this.said.textContent = `${pairs.length} finish times; the median is off by ${significant(100 * errors[errors.length >> 1], 2)} %. On the line the prediction is exact.`;
    const dots = {
      name: "devices",
      colour: runs[0].colour,
      dash: "none",
      points: true,
      x: pairs.map((pair) => pair.predicted),
      y: pairs.map((pair) => pair.measured),
    };
    this.chart.update({
      series: [{ name: "as predicted", colour: "#7f7f7f", dash: "--", x: [0, most], y: [0, most] }, dots],
      xMin: 0,
      xMax: most,
      yMin: 0,
      yMax: most,
      silent: true,
    });
    const columns = [
      { head: "round", cell: (pair) => String(pair.round) },
      { head: "device", cell: (pair) => String(pair.device) },
      { head: "predicted", cell: (pair) => seconds(pair.predicted) },
      { head: "measured", cell: (pair) => seconds(pair.measured) },
    ];
    this.side.replaceChildren(makeTable("Finish of each device", columns, pairs.slice(0, 300)));
  }
}
