// One run of the Cell page: its map, its bars, the numbers of the device pointed at, and all of them as a table.

import { RoundBars } from "../charts/bars.js";
import { BlockStrip } from "../charts/blocks.js";
import { swatch } from "../charts/ink.js";
import { CellMap, DEVICE_COLUMNS, facts } from "../charts/map.js";
import { get, query } from "../lib/client.js";
import { h, scroller } from "../lib/dom.js";
import { bytes, gets, joules, percent, plural, seconds, significant } from "../lib/format.js";
import { rounds } from "../lib/rounds.js";
import { makeTable } from "../lib/table.js";

const MOST_KEPT = 200; // rounds kept, so that going back is instant and memory bounded

/** A device as it is known so long after the start of its round. */
const notYet = (now) => (device) => ({
  ...device,
  delivered: null,
  measured_finish_s: device.measured_finish_s <= now ? device.measured_finish_s : null,
});

/** What this page says of columns of the answer that it knows; of others, what the answer says of them. */
const ROUND_FACTS = {
  epochs: (value) => `${significant(value, 3)} ${value === 1 ? "epoch" : "epochs"}`,
  bits: (value) => `${significant(value, 3)} bits a weight`,
  sent_bytes: (value) => `${bytes(value)} sent`,
};
const DEVICE_HEADS = { epochs: "epochs", bits: "bits a weight" };

/** The columns that this page knows only from the answer: of the round, or of its devices. */
const added = (round, perDevice) => (round.columns ?? []).filter((column) => column.per_device === perDevice);

export class CellRow {
  constructor(name, hover) {
    this.run = null;
    this.records = [];
    this.cache = new Map();
    this.title = h("h2", {});
    this.summary = h("p", { class: "round-summary" });
    this.facts = h("dl", { class: "facts" });
    const map = h("div", { class: "map-host" });
    const bars = h("div", { class: "bars-host" });
    const strip = h("div", { class: "blocks-host", hidden: true });
    this.table = scroller(`The round of run ${name} as a table`, { class: "round-table", hidden: true });
    this.button = h(
      "button",
      { type: "button", class: "small", "aria-expanded": "false", onclick: () => this.toggleTable() },
      "Table",
    );
    this.element = h(
      "section",
      { class: "card cell-row", "aria-label": `Run ${name}`, "data-row": name, hidden: true },
      h("div", { class: "cell-row-head" }, this.title, this.summary, this.button),
      strip,
      map,
      bars,
      this.facts,
      this.table,
    );
    this.map = new CellMap(map, { hover });
    this.strip = new BlockStrip(strip, { label: `Resource blocks of the round of run ${name}`, hover });
    this.bars = new RoundBars(bars, {
      label: `Timeline of the round of run ${name}, one bar per scheduled device; the table below has the numbers`,
      hover,
    });
  }

  async open(run) {
    if (!run) {
      this.run = null;
      this.records = [];
      this.element.hidden = true;
      return;
    }
    this.element.hidden = false;
    if (this.run?.key === run.key && this.run.store === run.store) return;
    this.run = run;
    this.round = this.devices = null;
    this.cache.clear();
    this.records = [];
    this.title.replaceChildren(
      swatch(run.colour, run.dash),
      h("span", {}, run.policy),
      h("small", { class: "muted" }, `seed ${run.seed}`),
    );
    this.summary.textContent = "loading …";
    this.field = null;
    this.loadField(run);
    await this.reload();
  }

  /** The shade behind the devices; the map does not wait for it. */
  async loadField(run) {
    try {
      const field = await get(this.path("/field", { size: 96 }));
      if (this.run === run) this.field = field;
      if (this.run === run && this.round) this.map.setField(field, this.round.radius_m);
    } catch {
      // a map without contours is still a map
    }
  }

  path(rest, values = {}) {
    const store = this.run.status === "running" ? "" : this.run.store;
    return query(`api/runs/${this.run.key}${rest}`, { ...values, store });
  }

  async reload() {
    const run = this.run;
    const answer = await get(this.path(""));
    if (this.run !== run) return;
    this.records = rounds(answer);
    const fresh = answer.run;
    if (fresh.store) Object.assign(run, { store: fresh.store, status: fresh.status }); // it has ended meanwhile
    if (fresh?.dash && !run.dash) Object.assign(run, { colour: fresh.colour, dash: fresh.dash });
  }

  /** The round's document; answers null where another was asked for meanwhile. */
  async load(round, sharing) {
    const key = `${round} ${sharing}`;
    this.wanted = key;
    const document = await this.fetch(round, sharing);
    if (this.wanted !== key) return null;
    this.round = document;
    this.sharing = sharing;
    if (round < this.records.length) this.fetch(round + 1, sharing).catch(() => {}); // the next is probably wanted too
    return document;
  }

  fetch(round, sharing) {
    const key = `${round} ${sharing}`;
    if (!this.cache.has(key)) {
      const asked = get(this.path(`/rounds/${round}`, { sharing }));
      this.cache.set(key, asked);
      asked.catch(() => this.cache.delete(key));
      if (this.cache.size > MOST_KEPT) this.cache.delete(this.cache.keys().next().value);
    }
    return this.cache.get(key);
  }

  /** When the round that is shown began. */
  get began() {
    return this.round.clock_s - (this.records[this.round.round - 1]?.round_s ?? this.round.round_s);
  }

  /** Another moment of the round that is drawn, in seconds since it began. */
  seek(now) {
    if (!this.round) return;
    this.bars.seek(Math.min(now, this.round.round_s));
    this.map.seek(Math.min(now, this.round.round_s));
  }

  draw(xMax, clock) {
    const { round, run } = this;
    if (!round) return;
    if (this.ground !== run) {
      this.map.setField(this.field, round.radius_m);
      const law = round.law === "density" ? "" : ` · ${round.law}`;
      this.title.lastChild.textContent = `seed ${run.seed} · radius ${significant(round.radius_m)} m${law}`;
    }
    this.ground = run;
    const now = clock === null ? undefined : Math.max(0, Math.min(round.round_s, clock - this.began));
    this.underWay = clock !== null && clock < round.clock_s;
    // Who will be lost is not known before the round has ended.
    this.devices = this.underWay ? round.devices.map(notYet(now)) : round.devices;
    this.map.update(this.devices, run.colour);
    if (this.underWay) this.map.seek(now);
    const bars = this.devices
      .filter((device) => device.scheduled)
      .map((device) => ({
        id: device.index,
        name: `${device.index}`,
        start_s: device.start_s,
        compute_s: device.start_s + device.compute_s,
        finish_s: device.finish_s,
        share: device.share,
        label: gets(device, round.shared),
        delivered: device.delivered,
        measured_s: device.measured_finish_s ?? undefined,
      }));
    this.bars.update({ bars, round_s: round.round_s, xMax, colour: run.colour, now_s: now });
    this.strip.update(round.blocks, this.devices.filter((device) => device.scheduled));
    this.drawSummary(bars.length);
    this.highlight(this.at ?? null);
    this.fillTable();
  }

  drawSummary(count) {
    const { round } = this;
    const item = (name, text) => h("span", { "data-fact": name }, text);
    const other = this.sharing === "equal" ? round.round_s_optimal : round.round_s_equal;
    const versus = Number.isFinite(other)
      ? `${this.sharing === "equal" ? "optimal" : "equal"} shares: ${seconds(other)}`
      : "";
    this.summary.replaceChildren(
      item("round", `round ${round.round}`),
      item("devices", plural(count, "device")),
      h("strong", { "data-fact": "round_s" }, seconds(round.round_s, 4)),
      h("span", { class: "muted", "data-fact": "versus" }, versus),
      item("clock", this.underWay ? "under way" : `at ${seconds(round.clock_s, 4)}`),
      item("joules", this.underWay ? "" : joules(round.joules)),
      item("accuracy", this.underWay ? this.accuracyBefore() : percent(round.accuracy)),
      ...added(round, false).map(({ name, unit, text }) =>
        item(name, Number.isFinite(round[name]) ? (ROUND_FACTS[name]?.(round[name]) ?? `${text || name} ${significant(round[name], 4)} ${unit}`.trim()) : ""),
      ),
      round.cut ? h("span", { class: "muted" }, round.cut) : "",
    );
  }

  /** While a round is under way, the accuracy is that of the round before. */
  accuracyBefore() {
    const before = this.records[this.round.round - 2];
    return before ? `${percent(before.accuracy)} after round ${before.round}` : "not trained yet";
  }

  highlight(index) {
    this.at = index;
    this.map.highlight(index);
    this.bars.highlight(index);
    this.strip.highlight(index);
    const device = this.devices?.find((other) => other.index === index);
    const rows = device
      ? [["device", String(index)], ...facts(device, this.round.shared)]
      : [["device", "hover over one, or tap it"]];
    this.facts.replaceChildren(
      ...rows.map(([name, value]) => h("div", { "data-fact": name }, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.button.setAttribute("aria-expanded", String(!this.table.hidden));
    this.fillTable();
  }

  fillTable() {
    if (this.table.hidden || !this.devices) return;
    const known = DEVICE_COLUMNS.filter(([head]) => head !== "blocks" || this.round.blocks !== null);
    const told = added(this.round, true).filter(({ name }) => this.devices.some((device) => Number.isFinite(device[name])));
    const more = told.map(({ name, unit, text }) => [
      DEVICE_HEADS[name] ?? [text || name, unit].filter(Boolean).join(", "),
      (device) => (Number.isFinite(device[name]) ? significant(device[name], 4) : ""),
    ]);
    const columns = [...known, ...more].map(([head, cell]) => ({ head, cell }));
    this.table.replaceChildren(
      makeTable(`${this.run.policy}, round ${this.round.round}`, columns, this.devices, (device) => ({
        "data-device": device.index,
      })),
    );
  }
}
