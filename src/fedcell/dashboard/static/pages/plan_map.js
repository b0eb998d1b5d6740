// The devices of a plan on a map, to be dragged: their distance changes, and with it every policy's plan.

import { ink, swatch } from "../charts/ink.js";
import { CellMap } from "../charts/map.js";
import { h, setOptions } from "../lib/dom.js";
import { fixed, gets, percent, seconds, significant } from "../lib/format.js";

const GOLDEN = Math.PI * (3 - Math.sqrt(5)); // a table has distances but no directions: these spread them evenly
const PROFILE = "profile:";
const MOST_LABELS = 12;

/** What the policy's device brings: its labels beside those of all devices together. */
const profileKey = (colour, text) => h("span", { class: "key" }, h("i", { style: { background: colour } }), text);

function profileBars(labels, mine, all, colour) {
  const most = Math.max(...mine, ...all, 1e-9);
  const bar = (kind, value) =>
    h("i", { class: kind, style: { width: `${(100 * value) / most}%`, ...(kind === "mine" ? { background: ink(colour) } : {}) } });
  return h(
    "ul",
    { class: "profile", "aria-label": "What the device's data is like, beside that of all devices" },
    labels.slice(0, MOST_LABELS).map((label, i) =>
      h(
        "li",
        {},
        h("span", { title: label }, label),
        h("span", { class: "profile-bars", "aria-hidden": "true" }, bar("mine", mine[i]), bar("all", all[i])),
        h("b", {}, percent(mine[i], 0)),
        h("span", { class: "unseen" }, `, of all devices ${percent(all[i], 0)}`),
      ),
    ),
  );
}

/** Rows of numbers as shares that sum to 1; null where a row is empty. */
function shares(rows) {
  return rows.map((row) => {
    const sum = row.reduce((total, value) => total + Math.abs(value), 0);
    return sum > 0 ? row.map((value) => value / sum) : null;
  });
}

export class PlanMap {
  /** `moved(index, distance_m)` is called as a device is dragged. */
  constructor(moved) {
    this.moved = moved;
    this.angles = new Map();
    this.pick = h("select", { "aria-label": "Policy on the map", onchange: () => this.choose() });
    this.facts = h("div", { class: "plan-facts" });
    this.none = h("p", { class: "muted", hidden: true }, "A map needs a column distance_m, and at most 200 devices.");
    this.body = h("div", { class: "plan-map" });
    const host = h("div", { class: "map-host" });
    this.body.append(host, this.facts);
    this.element = h(
      "section",
      { class: "card", "aria-label": "Map" },
      h("div", { class: "card-head" }, h("h2", {}, "Map"), this.pick),
      this.none,
      this.body,
    );
    this.map = new CellMap(host, {
      label: "Map of the devices; left and right go from device to device, up and down move it nearer or further",
      hover: (index) => this.look(index),
      drag: (index, x, y) => this.dragged(index, x, y),
      describe: (device) => this.lines(device),
    });
  }

  /** An answer of /api/plan, and the table that was asked for. */
  draw(answer, columns, rows) {
    this.answer = answer;
    const at = columns.indexOf("distance_m");
    const distances = rows.map((row) => (at < 0 ? NaN : Number(row[at])));
    const shown = answer.table.names?.length === rows.length && distances.every((metres) => metres > 0);
    this.none.hidden = shown;
    this.body.hidden = this.pick.hidden = !shown;
    if (!shown) return;
    const labels = columns.filter((column) => column.startsWith(PROFILE));
    const lines = answer.plans.map((plan) => plan.policy);
    // Where the data is known, who looks at it is the one to look at; until the user chooses another.
    const first = labels.length ? lines.find((line) => line.split(":")[0] === "diverse") : lines[0];
    setOptions(this.pick, lines.map((line) => [line, line]), this.chosen ?? first ?? lines[0]);
    if (this.map.dragging === null) this.distances = distances; // else it stays where the pointer has it
    const places = labels.map((column) => columns.indexOf(column));
    this.labels = labels.map((column) => column.slice(PROFILE.length));
    this.profiles = labels.length ? shares(rows.map((row) => places.map((place) => Number(row[place]) || 0))) : null;
    if (this.map.dragging === null) this.setRadius(Math.max(...distances));
    this.redraw();
  }

  /** Room to drag further out; the scale stays while it fits, or the devices would swim. */
  setRadius(furthest) {
    if (this.radius && furthest <= this.radius && furthest > 0.55 * this.radius) return;
    const power = 10 ** (Math.floor(Math.log10(furthest)) - 1);
    this.radius = Math.ceil((1.2 * furthest) / power) * power;
    this.map.setField(null, this.radius);
  }

  choose() {
    this.chosen = this.pick.value;
    this.redraw();
  }

  get plan() {
    return this.answer.plans.find(({ policy }) => policy === this.pick.value) ?? this.answer.plans[0];
  }

  redraw() {
    const { plan } = this;
    const { names, upload_s: upload, compute_s: compute } = this.answer.table;
    const scheduled = new Map(plan.devices.map((device) => [device.index, device]));
    const devices = names.map((name, index) => {
      const angle = this.angles.get(index) ?? index * GOLDEN;
      const planned = scheduled.get(index);
      return {
        index,
        name,
        distance_m: this.distances[index],
        x_m: this.distances[index] * Math.cos(angle),
        y_m: this.distances[index] * Math.sin(angle),
        upload_s: upload[index],
        compute_s: compute[index],
        scheduled: Boolean(planned),
        share: planned?.share ?? null,
        planned,
      };
    });
    this.devices = devices;
    this.map.update(devices, plan.colour);
    this.look(this.at ?? null);
  }

  dragged(index, x, y) {
    const distance = Math.min(this.radius, Math.max(1, Math.hypot(x, y)));
    this.angles.set(index, Math.atan2(y, x));
    this.distances[index] = distance;
    this.at = index;
    this.redraw(); // at once; the plans follow
    this.moved(index, Number(distance.toPrecision(4)));
  }

  /** What is said of a device. */
  lines(device) {
    const { plan } = this;
    const takers = this.answer.plans.filter(({ devices }) => devices.some(({ index }) => index === device.index));
    return [
      ["distance", `${significant(device.distance_m, 4)} m`],
      ["trains", seconds(device.compute_s)],
      ["uploads, entire band", seconds(device.upload_s)],
      [plan.policy, device.planned ? ["scheduled", gets(device.planned, plan.shared)].filter(Boolean).join(", ") : "not scheduled"],
      ...(device.planned ? [["finishes at", seconds(device.planned.finish_s)]] : []),
      ["scheduled by", takers.length ? takers.map(({ policy }) => policy).join(", ") : "nobody"],
    ];
  }

  /** Why a policy that looks at the data takes a device: the imbalance with and without it. */
  reason(device) {
    const { plan } = this;
    const other = plan.imbalance_other?.[device.index];
    if (!Number.isFinite(plan.imbalance) || !(Number.isFinite(other) || device.scheduled)) return null;
    const [with_, without] = device.scheduled ? [plan.imbalance, other] : [other, plan.imbalance];
    const better = with_ < without || !Number.isFinite(without);
    return h(
      "p",
      { class: "reason-why", "data-fact": "imbalance" },
      `${plan.policy}: imbalance ${fixed(with_, 3)} with it, ${Number.isFinite(without) ? fixed(without, 3) : "none"} without: `,
      h("strong", {}, better ? "the round is more like all devices with it" : "the round is less like all devices with it"),
    );
  }

  look(index) {
    this.at = index ?? this.at;
    this.map.highlight(this.at ?? null);
    const device = this.devices?.find((other) => other.index === this.at);
    if (!device) {
      this.facts.replaceChildren(h("p", { class: "muted" }, "Drag a device; every policy’s plan follows. Point at one to see what it brings."));
      return;
    }
    const mine = this.profiles?.[device.index];
    const known = this.profiles?.filter(Boolean) ?? [];
    const all = this.labels.map((_, i) => known.reduce((sum, row) => sum + row[i], 0) / Math.max(1, known.length));
    this.facts.replaceChildren(
      h("h3", {}, swatch(this.plan.colour, this.plan.dash), ` device ${device.name}`),
      h(
        "dl",
        { class: "facts" },
        this.lines(device).map(([name, value]) => h("div", { "data-fact": name }, h("dt", {}, name), h("dd", {}, value))),
      ),
      mine ? h("p", { class: "legend" }, profileKey(ink(this.plan.colour), "this device's data"), profileKey("var(--compute)", "all devices'")) : "",
      mine ? profileBars(this.labels, mine, all, this.plan.colour) : "",
      this.reason(device) ?? "",
    );
  }
}
