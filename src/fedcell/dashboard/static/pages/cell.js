// Cell: any round of any run, on the map and as bars; two policies side by side on the same seed.

import { barsLegend } from "../charts/bars.js";
import { LineChart } from "../charts/chart.js";
import { atMost } from "../lib/client.js";
import { announce, h, icon, segmented, setOptions } from "../lib/dom.js";
import { fixed, percent, significant } from "../lib/format.js";
import { CellRow } from "./cell_row.js";
import { RunPicker } from "./run_picker.js";

const STEP_MS = { round: 2000, clock: 100 }; // of a round, or of a second of the clock, at 1×
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const SPEEDS = ["0.5", "1", "2", "4", "8"].map((speed) => [speed, `${speed.replace("0.5", "½")}×`]);
const SYNCS = ["round", "clock"].map((name) => [name, name]);
const SHARINGS = [
  ["planned", "as planned"],
  ["optimal", "optimal"],
  ["equal", "equal"],
];

/** The round that is under way at a time: the first that ends then or later. */
function roundAt(rows, clock) {
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].clock_s >= clock) high = middle;
    else low = middle + 1;
  }
  return low + 1;
}

/** Accuracy as it is known at a time: the last model stands until then. */
function known(records, until) {
  const rows = records.filter((row) => row.clock_s <= until);
  const last = Number.isFinite(until) ? rows.slice(-1) : [];
  return {
    x: [...rows.map((row) => row.clock_s), ...last.map((row) => Math.max(row.clock_s, until))],
    y: [...rows, ...last].map((row) => row.accuracy),
  };
}

class CellPage {
  constructor(root, shared) {
    this.shared = shared;
    this.sync = "round";
    this.sharing = "planned";
    this.at = 1;
    this.playing = false;
    this.grow = atMost(1, () => this.live());
    this.build(root);
  }

  build(root) {
    this.picker = new RunPicker(() => this.choose());
    this.play = h("button", { type: "button", class: "primary play", onclick: () => this.toggle() });
    this.slider = h("input", {
      type: "range",
      min: 1,
      max: 1,
      step: 1,
      value: 1,
      "aria-label": "Round",
      oninput: () => this.go(Number(this.slider.value)),
    });
    this.place = h("output", { class: "place" });
    this.speed = h("select", { "aria-label": "Speed" });
    setOptions(this.speed, SPEEDS, "1");
    this.bySync = segmented("Step both by", SYNCS, this.sync, (value) => this.setSync(value));
    this.bySharing = segmented("Shares of the band", SHARINGS, this.sharing, (value) => this.setSharing(value));
    this.error = h("p", { class: "error", role: "alert" });
    const label = (text, child) => h("div", { class: "control" }, h("span", { class: "field-label" }, text), child);
    this.controls = h(
      "section",
      { class: "card cell-controls", "aria-label": "Run and round" },
      h("div", { class: "pickers" }, this.picker.fields, label("shares", this.bySharing.element)),
      h(
        "div",
        { class: "transport" },
        this.play,
        this.slider,
        this.place,
        this.speed,
        label("move by", this.bySync.element),
      ),
      this.error,
    );
    this.hover = (index) => this.rows.forEach((row) => row.highlight(index));
    this.rows = [new CellRow("A", this.hover), new CellRow("B", this.hover)];
    const plot = h("div", { class: "plot" });
    this.side = h(
      "section",
      { class: "card cell-side", "aria-label": "Accuracy so far" },
      h("h2", {}, "Accuracy against time"),
      plot,
      barsLegend(true),
      h(
        "p",
        { class: "note" },
        "Area: share of the band. Contours: mean SNR. With optimal shares all scheduled devices finish at the same time; with equal shares the others wait for the slowest.",
      ),
    );
    this.chart = new LineChart(plot, {
      label: "Accuracy against time of the runs shown; the line marks the position of the slider",
      xLabel: "time, s",
      yLabel: "accuracy, %",
      yTicks: 4,
      xTicks: 4,
      yFormat: (v) => significant(100 * v, 3),
      tipFormat: (v) => percent(v),
      tipTitle: (v) => `${fixed(v, 0)} s`,
    });
    this.body = h(
      "div",
      { class: "cell-body" },
      h(
        "div",
        { class: "cell-rows" },
        this.rows.map((row) => row.element),
      ),
      this.side,
    );
    this.nothing = h(
      "div",
      { class: "empty card", hidden: true },
      h("h2", {}, "No runs yet"),
      h(
        "p",
        {},
        "Start a ",
        h("a", { href: "#race" }, "race"),
        " to look into its rounds here, while it runs and afterwards. Or open a results file: ",
        h("code", {}, "fedcell serve results.db --read other.db"),
      ),
    );
    root.append(this.controls, this.nothing, this.body);
    this.drawPlay();
  }

  async show({ params }) {
    this.given = params.has("run") ? params : this.given;
    for (const name of ["sync", "sharing"]) if (params.has(name)) this[name] = params.get(name);
    this.bySync.set(this.sync);
    this.bySharing.set(this.sharing);
    try {
      await this.load();
    } catch (error) {
      this.error.textContent = error.message;
    }
    clearInterval(this.timer);
    this.timer = setInterval(this.grow, 1500);
  }

  /** The server answers again, and a run that grew may have been interrupted. */
  back() {
    this.load().catch((error) => (this.error.textContent = error.message));
  }

  hide() {
    clearInterval(this.timer);
    if (this.playing) this.toggle();
  }

  key(event) {
    if (event.key === " ") this.toggle();
    else if (event.key === "e") this.setSharing(this.sharing === "equal" ? "optimal" : "equal");
    else if (event.target !== this.slider && (event.key === "ArrowLeft" || event.key === "ArrowRight"))
      this.go(this.at + (event.key === "ArrowLeft" ? -1 : 1));
    else return false;
    return true;
  }

  async load() {
    const { given } = this;
    this.given = null;
    await this.picker.load(given);
    const none = this.picker.runs.length === 0;
    this.nothing.hidden = !none;
    const { missing } = this.picker;
    this.body.hidden = none || Boolean(missing);
    this.controls.hidden = none;
    if (missing) this.error.textContent = `The run ${missing.slice(0, 16)} is not in these files; choose another one above.`;
    if (given) this.at = Number(given.get("at")) || 1;
    if (!none && !missing) await this.choose();
  }

  async choose() {
    const chosen = this.picker.chosen();
    this.error.textContent = "";
    this.body.hidden = false;
    try {
      await Promise.all(this.rows.map((row, i) => row.open(chosen[i])));
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.body.classList.toggle("two", Boolean(chosen[1]));
    this.body.classList.toggle(
      "has-measured",
      chosen.some((run) => run && run.source !== "simulation"),
    );
    await this.go(this.at);
  }

  shown() {
    return this.rows.filter((row) => row.run && row.records.length);
  }

  limits() {
    const rows = this.shown();
    const most = (of) => Math.max(1, ...rows.map((row) => of(row.records)));
    if (this.sync === "round") return { min: 1, max: most((records) => records.length) };
    return { min: 0, max: Math.ceil(most((records) => records[records.length - 1].clock_s)) };
  }

  /** Move to a round, or in clock mode to a second. */
  async go(at) {
    const { min, max } = this.limits();
    this.at = Math.min(max, Math.max(min, at));
    Object.assign(this.slider, { min, max, value: this.at });
    const byClock = this.sync === "clock";
    const first = this.shown()[0];
    const clock = byClock ? this.at : first?.records[Math.min(this.at, first.records.length) - 1].clock_s;
    this.place.textContent = byClock ? `${this.at} s of ${max} s` : `round ${this.at} of ${max}`;
    this.slider.setAttribute("aria-label", byClock ? "Time" : "Round");
    this.slider.setAttribute("aria-valuetext", this.place.textContent);
    this.keep();
    const asked = this.shown().map((row) =>
      row.load(byClock ? roundAt(row.records, this.at) : Math.min(this.at, row.records.length), this.sharing),
    );
    try {
      const rounds = (await Promise.all(asked)).filter(Boolean);
      const xMax =
        1.02 *
        Math.max(
          0,
          ...rounds.flatMap((round) => [
            round.round_s,
            ...round.devices.map((device) => (device.scheduled ? device.finish_s : 0)),
          ]),
        );
      const alive = this.playing && !still(); // then a round is shown from its beginning
      for (const row of this.shown()) if (row.round) row.draw(xMax, byClock ? this.at : alive ? row.began : null);
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.drawChart(clock);
  }

  /** In clock mode the curves end at the moment that is shown. */
  drawChart(cursor) {
    const until = this.sync === "clock" ? cursor : Infinity;
    const end = Math.max(1, ...this.shown().map(({ records }) => records[records.length - 1].clock_s));
    const series = this.shown().map(({ run, records }) => ({
      name: run.policy,
      colour: run.colour,
      dash: run.dash,
      step: true,
      ...known(records, until),
    }));
    const values = this.shown().flatMap(({ records }) => records.map((row) => row.accuracy).filter(Number.isFinite));
    const lowest = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
    this.chart.update({ series, cursor, xMin: 0, xMax: end, yMin: Math.floor(10 * Math.min(0.9, lowest)) / 10, yMax: 1 });
  }

  keep() {
    const [a, b] = this.rows;
    if (!a.run) return;
    this.shared.keepPlace("cell", null, {
      run: a.run.key,
      store: a.run.status === "running" ? null : a.run.store,
      with: b.run?.key,
      at: this.at,
      sync: this.sync,
      sharing: this.sharing,
    });
  }

  setSync(value) {
    if (value === this.sync) return;
    this.sync = value;
    const first = this.shown()[0];
    if (!first) return; // still loading: it begins where it is
    const at =
      value === "clock"
        ? first.records[Math.min(this.at, first.records.length) - 1].clock_s
        : roundAt(first.records, this.at);
    this.go(Math.floor(at));
  }

  setSharing(value) {
    this.sharing = value;
    this.bySharing.set(value);
    announce(value === "planned" ? "shares as planned" : `${value} shares`);
    this.go(this.at);
  }

  /** A run under way grows; its rounds come to the slider. */
  async live() {
    const growing = this.shown().filter((row) => row.run.status === "running");
    try {
      await Promise.all(growing.map((row) => row.reload()));
      const { max } = this.limits();
      if (growing.length && Number(this.slider.max) !== max) {
        this.slider.max = max;
        this.place.textContent = this.place.textContent.replace(
          / of .*/,
          this.sync === "clock" ? ` of ${max} s` : ` of ${max}`,
        );
        this.drawChart(this.chart.data.cursor);
      }
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  drawPlay() {
    this.play.replaceChildren(icon(this.playing ? "pause" : "play"), this.playing ? "Stop" : "Play");
    this.play.setAttribute("aria-pressed", String(this.playing));
  }

  toggle() {
    this.playing = !this.playing;
    this.drawPlay();
    if (!this.playing) {
      clearTimeout(this.tick);
      cancelAnimationFrame(this.frame);
      return this.go(this.at);
    }
    if (this.at >= this.limits().max) this.at = this.limits().min - 1;
    return this.step();
  }

  /** One step after another: the next is asked for when the last is drawn, so a slow server is never overrun. */
  async step() {
    if (!this.playing) return;
    if (this.at >= this.limits().max) return this.toggle();
    const began = performance.now();
    await this.go(this.at + 1);
    if (!this.playing) return;
    const left = Math.max(10, STEP_MS[this.sync] / Number(this.speed.value) - (performance.now() - began));
    if (still()) this.tick = setTimeout(() => this.step(), left);
    else this.comeAlive(left);
  }

  /** For so many milliseconds, all that is shown goes on by its own clock; then comes the next step. */
  comeAlive(duration) {
    const rows = this.shown().filter((row) => row.round);
    const longest = Math.max(0, ...rows.map((row) => row.round.round_s));
    const start = performance.now();
    const move = () => {
      if (!this.playing) return;
      const part = Math.min(1, (performance.now() - start) / duration);
      for (const row of rows) row.seek(this.sync === "clock" ? Math.max(0, this.at + part - row.began) : part * longest);
      if (part < 1) this.frame = requestAnimationFrame(move);
      else this.step();
    };
    move();
  }
}

export const mount = (root, shared) => new CellPage(root, shared);
