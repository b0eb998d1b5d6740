// What a plan looks like: the comparison, the objective, every policy's timeline and the scheduled devices.

import { RoundBars, barsLegend } from "../charts/bars.js";
import { LineChart } from "../charts/chart.js";
import { swatch } from "../charts/ink.js";
import { announce, h, scroller, segmented, setOptions } from "../lib/dom.js";
import { fixed, gets, plural, resource, seconds, significant } from "../lib/format.js";
import { makeTable } from "../lib/table.js";

const SCALES = [
  ["same", "same scale"],
  ["own", "each its own"],
];

/** Fields of a device that say nothing of what it gets. */
const TIMES = ["device", "index", "upload_s", "compute_s", "finish_s"];

/** What a policy may decide of a device beside its share: how long it trains, and the bits a weight of its upload. */
const EFFORT = { epochs: "local epochs", bits: "bits a weight" };

/** What a plan's policy decided of that, over all devices, as one would say it. */
const effortText = (row) =>
  Object.entries(EFFORT)
    .filter(([name]) => row?.[name])
    .map(([name, words]) => `${row[name]} ${words}`)
    .join(", ");

/** The cards of an answer of /api/plan; `exports` are its buttons. */
export class PlanView {
  constructor(exports) {
    this.panels = new Map();
    this.scale = "same";
    this.comparison = scroller("Comparison of the policies", { class: "comparison" });
    this.notes = h("ul", { class: "notes" });
    this.grid = h("div", { class: "multiples" });
    this.listed = scroller("Scheduled devices of the policy", { class: "listed" });
    this.torn = h("p", { class: "note", hidden: true });
    this.pick = h("select", { "aria-label": "Policy whose devices are listed", onchange: () => this.fillDevices() });
    const plot = h("div", { class: "plot" });
    this.elements = [this.compareCard(exports, plot), this.timelinesCard(), this.devicesCard()];
    this.chart = new LineChart(plot, {
      label:
        "Objective of the best set of each size; greedy's choice and the optimum are marked, the table has the numbers",
      xLabel: "devices in the round, n",
      yLabel: "(theta + 1/n) × round, s",
      snap: true,
      tipTitle: (n) => plural(n, "device"),
      tipFormat: (v) => seconds(v),
    });
  }

  compareCard(exports, plot) {
    const objective = h(
      "div",
      { class: "objective" },
      h("h3", {}, "Time to train against the number of devices"),
      plot,
    );
    return h(
      "section",
      { class: "card compare", "aria-label": "All policies" },
      h("div", { class: "card-head" }, h("h2", {}, "Every policy’s round"), exports),
      h("div", { class: "compare-body" }, this.comparison, objective),
      this.notes,
    );
  }

  timelinesCard() {
    const byScale = segmented("Scale of the timelines", SCALES, this.scale, (value) => {
      this.scale = value;
      if (this.answer) this.drawPanels(this.answer.plans);
    });
    const legend = h("div", { class: "actions" }, barsLegend(), byScale.element);
    return h(
      "section",
      { class: "card", "aria-label": "Timelines" },
      h("div", { class: "card-head" }, h("h2", {}, "Timelines"), legend),
      this.torn,
      this.grid,
    );
  }

  devicesCard() {
    return h(
      "section",
      { class: "card", "aria-label": "Scheduled devices" },
      h("div", { class: "card-head" }, h("h2", {}, "Scheduled devices"), this.pick),
      this.listed,
    );
  }

  draw(answer) {
    this.answer = answer;
    this.drawComparison(answer);
    const notes = [...(answer.table?.notes ?? []), ...(answer.notes ?? []), answer.cut].filter(Boolean);
    this.notes.replaceChildren(...[...new Set(notes)].map((note) => h("li", {}, note)));
    this.drawObjective(answer.curve);
    this.drawPanels(answer.plans);
    setOptions(
      this.pick,
      answer.plans.map((plan) => [plan.policy, plan.policy]),
    );
    this.fillDevices();
    clearTimeout(this.saying);
    const [best] = answer.comparison;
    this.saying = setTimeout(() => announce(`planned: ${best.policy}, ${seconds(best.round_s)}`), 800); // once it rests
  }

  drawComparison(answer) {
    const style = new Map(answer.plans.map((plan) => [plan.policy, plan]));
    const named = (row) =>
      h(
        "span",
        { class: "policy" },
        swatch(style.get(row.policy)?.colour, style.get(row.policy)?.dash),
        h("span", { class: "policy-line" }, row.policy),
      );
    const profiled = answer.comparison.some((row) => Number.isFinite(row.imbalance));
    const decided = Object.entries(EFFORT).filter(([name]) => answer.comparison.some((row) => row[name]));
    this.comparison.replaceChildren(
      makeTable(
        `${answer.plans[0].law === "density" ? "" : `Law ${answer.plans[0].law}. `}Time to train: (theta + 1/n) × round, relative to the minimum` +
          (decided.length ? "; that says nothing of a policy that decides work or bits: race it instead" : "") +
          (profiled ? "; imbalance: 0 for data like that of all devices together, 1 for one device on average" : ""),
        [
          { head: "policy", left: true, cell: named },
          { head: "devices", cell: (row) => String(row.devices) },
          ...decided.map(([name, head]) => ({ head, cell: (row) => row[name] ?? "–" })),
          { head: "round, s", cell: (row) => significant(row.round_s, 5) },
          { head: "s per device", cell: (row) => significant(row.per_device_s, 5) },
          {
            head: "time to train",
            cell: (row) => (Number.isFinite(row.relative) ? `${fixed(row.relative, 3)} ×` : "–"),
          },
          ...(profiled ? [{ head: "imbalance", cell: (row) => fixed(row.imbalance, 3) }] : []),
        ],
        answer.comparison,
        (row) => ({ "data-policy": row.policy }),
      ),
    );
  }

  drawObjective(curve) {
    if (!curve) return;
    const {
      n,
      objective_s: objective,
      greedy_n: greedy,
      optimal_n: optimal,
      greedy_objective_s: greedyAt,
      optimal_objective_s: optimalAt,
    } = curve;
    const of = (name) => this.answer.plans.find((plan) => plan.policy.split(":")[0] === name)?.colour;
    // A far worse end would flatten what one wants to see: the axis ends at four times the least.
    const least = Math.min(...objective.filter(Number.isFinite));
    const marks =
      greedy === optimal
        ? [{ x: greedy, y: greedyAt, label: `greedy and optimum, n = ${greedy}`, colour: of("optimal") }]
        : [
            { x: greedy, y: greedyAt, label: `greedy stops, n = ${greedy}`, colour: of("greedy") },
            { x: optimal, y: optimalAt, label: `optimum, n = ${optimal}`, colour: of("optimal") },
          ];
    const inside = objective.map((value) => (value <= 4 * least ? value : null));
    this.chart.update({
      series: [{ name: "best set of n", colour: "#000000", dash: "-", x: n, y: inside, points: n.length <= 60 }],
      marks,
      xMin: 1,
      yMin: 0,
      yMax: Math.min(4 * least, 1.25 * Math.max(...inside.filter(Number.isFinite))) || 1,
      empty: "No set of devices.",
    });
  }

  drawPanels(plans) {
    const common = this.commonScale(plans);
    const rows = new Map(this.answer.comparison.map((row) => [row.policy, row]));
    const wanted = plans.map((plan) => plan.policy).join("\n");
    if (this.grid.dataset.shown !== wanted) {
      this.grid.dataset.shown = wanted;
      this.panels.clear();
      this.grid.replaceChildren(...plans.map((plan) => this.panel(plan)));
    }
    for (const plan of plans) {
      const { title, bars } = this.panels.get(plan.policy);
      const effort = plan.devices.some((device) => Object.keys(EFFORT).some((name) => name in device)) ? effortText(rows.get(plan.policy)) : "";
      title.textContent = [`${plural(plan.n, "device")} in ${seconds(plan.round_s)}`, effort].filter(Boolean).join(", ");
      bars.update({
        bars: plan.devices.map((device) => ({
          id: device.index,
          name: device.device,
          label: gets(device, plan.shared),
          ...device,
        })),
        round_s: plan.round_s,
        total: plan.n,
        xMax: this.scale === "same" ? common : 1.02 * plan.round_s,
        colour: plan.colour,
      });
    }
  }

  /** Where the common scale ends: one very long round would make slivers of all others, so it is torn off. */
  commonScale(plans) {
    const times = plans.map((plan) => plan.round_s).sort((a, b) => a - b);
    const longest = times[times.length - 1] ?? 0;
    const end = Math.min(longest, 1.5 * (times[times.length >> 1] ?? 0)) || longest;
    const beyond = plans.filter((plan) => plan.round_s > 1.02 * end).map((plan) => plan.policy);
    this.torn.hidden = this.scale !== "same" || !beyond.length;
    this.torn.textContent = `Longer than the common scale, and cut off: ${beyond.join(", ")}.`;
    return 1.02 * end;
  }

  panel(plan) {
    const host = h("div", { class: "bars-host" });
    const title = h("span", { class: "muted" });
    const element = h(
      "figure",
      { "data-policy": plan.policy },
      h("figcaption", {}, swatch(plan.colour, plan.dash), h("b", {}, plan.policy), title),
      host,
    );
    this.panels.set(plan.policy, {
      title,
      bars: new RoundBars(host, { label: `Timeline of ${plan.policy}`, small: true }),
    });
    return element;
  }

  fillDevices() {
    const plan = this.answer?.plans.find(({ policy }) => policy === this.pick.value);
    if (!plan) return;
    const has = (name) => plan.devices.some((device) => Number.isFinite(device[name]));
    // Of a dedicated link a device has all: there is nothing to tell.
    const names = Object.keys(plan.devices[0] ?? {}).filter(
      (name) => !TIMES.includes(name) && has(name) && (plan.shared || name in EFFORT),
    );
    const order = (name) => (name in EFFORT ? 3 : name === "share" ? 1 : name.endsWith("_hz") ? 2 : 0); // whole units first
    names.sort((one, other) => order(one) - order(other));
    const columns = [
      { head: "device", left: true, cell: (row) => row.device },
      ...names.map((name) => {
        const [head, write] = name in EFFORT ? [EFFORT[name], significant] : resource(name);
        return { head, cell: (row) => write(row[name]) };
      }),
      { head: "trains, s", cell: (row) => significant(row.compute_s, 5) },
      { head: "uploads, s", cell: (row) => significant(row.upload_s, 5) },
      { head: "finish, s", cell: (row) => significant(row.finish_s, 5) },
    ];
    this.listed.replaceChildren(
      makeTable(`${plan.policy}: ${seconds(plan.round_s, 5)}`, columns, plan.devices.slice(0, 500), (row) => ({
        "data-device": row.device,
      })),
    );
  }
}
