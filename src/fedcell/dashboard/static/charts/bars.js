// A round as bars: one a device, waiting for the model, training, then upload, and a line where the round ends.

import { h, rem, s } from "../lib/dom.js";
import { share, significant } from "../lib/format.js";
import { ink } from "./ink.js";
import { ticks } from "./lines.js";

const MOST_BARS = 40;

/** Evenly from the quickest to the slowest where there are too many to draw, so that the picture keeps its shape. */
function chosen(bars) {
  const order = [...bars].sort((a, b) => a.compute_s - b.compute_s || a.id - b.id);
  if (order.length <= MOST_BARS) return order;
  return Array.from({ length: MOST_BARS }, (_, i) => order[Math.round((i * (order.length - 1)) / (MOST_BARS - 1))]);
}

/** Bars of one round in a host element; small ones for many panels, big ones with names and shares. */
export class RoundBars {
  constructor(host, { label, small = false, hover = () => {} }) {
    this.host = host;
    if (!small) Object.entries({ tabindex: "0", role: "region", "aria-label": label }).forEach((pair) => host.setAttribute(...pair));
    this.small = small;
    this.hover = hover;
    this.svg = s("svg", { class: "bars", role: "img", "aria-label": label });
    this.note = h("small", { class: "bars-note", hidden: true });
    host.append(this.svg, this.note);
    this.rows = new Map();
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /**
   * data: {bars: [{id, name, start_s, compute_s, finish_s, share, label, delivered, measured_s}], round_s, xMax, colour, now_s}
   * A device has the model at start_s (0 unless given), and is trained at compute_s.
   */
  update(data) {
    this.data = data;
    this.draw();
  }

  /** Another moment of the same round: the bars fill as far as that. */
  seek(now) {
    if (!this.moment) return;
    const { cover, line, sx, end } = this.moment;
    const x = Math.min(end, sx(now));
    cover.setAttribute("x", x);
    cover.setAttribute("width", Math.max(0, end - x));
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }

  highlight(id) {
    for (const [row, group] of this.rows) group.classList.toggle("lit", row === id);
  }

  draw() {
    const width = this.host.clientWidth;
    if (!this.data || width < 40) return;
    const { bars, round_s: round, xMax, colour, now_s: now } = this.data;
    const shown = chosen(bars);
    const em = rem() * (this.small ? 0.7 : 0.75);
    const longest = shown.reduce((most, bar) => Math.max(most, String(bar.name).length), 1);
    const left = Math.min(12, longest * 0.62 + 1) * em;
    const right = width - em * 4.6;
    const rowHeight = this.rowHeight(shown.length, em);
    const top = em * 0.4;
    const bottom = top + rowHeight * Math.max(1, shown.length) + em * 0.3;
    const sx = (time) => left + Math.min(1, time / (xMax || 1)) * (right - left);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${bottom + em * (this.small ? 1.6 : 3)}`);
    this.svg.setAttribute("height", bottom + em * (this.small ? 1.6 : 3));
    const parts = this.axis(sx, xMax, { em, top, bottom, left, right });
    this.rows.clear();
    shown.forEach((bar, i) => parts.push(this.row(bar, top + i * rowHeight, rowHeight, sx, { em, left, colour })));
    if (round <= xMax) parts.push(s("line", { class: "round-end", x1: sx(round), x2: sx(round), y1: top, y2: bottom }));
    else parts.push(...this.beyond(right, { em, top, bottom }));
    this.moment = null;
    if (Number.isFinite(now)) parts.push(...this.now(now, sx, Math.max(sx(round), ...shown.map((bar) => sx(bar.finish_s))), { top, bottom }));
    this.svg.replaceChildren(...parts);
    const total = this.data.total ?? bars.length; // the server may have listed some of them only
    this.note.hidden = shown.length >= total;
    this.note.textContent = this.note.hidden
      ? ""
      : total > bars.length
        ? `${shown.length} of ${total} devices are shown`
        : `${shown.length} of ${total} devices are shown, from the fastest to the slowest`;
  }

  /** As high as there is room for, so that the picture does not jump from round to round. */
  rowHeight(count, em) {
    if (this.small) return Math.max(4, Math.min(em * 1.3, (em * 13) / Math.max(1, count)));
    const room = (this.host.clientHeight || 300) - em * 4.5;
    return Math.max(em * 1.2, Math.min(em * 2.4, room / Math.max(1, count)));
  }

  /** The round goes on to the right of the common scale: the bars are torn off there. */
  beyond(right, { em, top, bottom }) {
    const teeth = Math.max(2, 2 * Math.round((bottom - top) / (em * 1.2)));
    const step = (bottom - top) / teeth;
    const zigzag = Array.from({ length: teeth }, (_, i) => `l${i % 2 ? -em * 0.4 : em * 0.4} ${step.toFixed(2)}`).join("");
    return [
      s("path", { class: "torn", d: `M${right - em * 0.6} ${top}${zigzag}V${top}Z` }),
      s("text", { class: "tick", x: right + em * 0.6, y: bottom + em * 1.2 }, "→"),
    ];
  }

  /** What has not happened yet is pale. */
  now(now, sx, end, { top, bottom }) {
    const cover = s("rect", { class: "future", y: top, height: bottom - top });
    const line = s("line", { class: "now", y1: top, y2: bottom });
    this.moment = { cover, line, sx, end };
    this.seek(now);
    return [cover, line];
  }

  axis(sx, xMax, { em, top, bottom, left, right }) {
    const parts = [];
    const count = Math.max(2, Math.floor((right - left) / (em * 6)));
    for (const time of ticks(0, xMax || 1, Math.min(8, count))) {
      parts.push(s("line", { class: "grid", x1: sx(time), x2: sx(time), y1: top, y2: bottom }));
      parts.push(
        s("text", { class: "tick", x: sx(time), y: bottom + em * 1.2, "text-anchor": "middle" }, `${significant(time, 4)}${this.small ? " s" : ""}`),
      );
    }
    if (!this.small) {
      const x = (left + right) / 2;
      parts.push(
        s(
          "text",
          { class: "axis-label", x, y: bottom + em * 2.6, "text-anchor": "middle" },
          "seconds into the round",
        ),
      );
    }
    return parts;
  }

  row(bar, y, height, sx, { em, left, colour }) {
    const thick = height * 0.74;
    const group = s("g", {
      class: bar.delivered === false ? "bar lost" : "bar",
      "data-device": bar.id,
      onpointerenter: () => this.hover(bar.id),
      onpointerleave: () => this.hover(null),
    });
    const [start, from] = [sx(bar.start_s ?? 0), sx(bar.compute_s)];
    // Behind the line of the round's end, also for a device that is done before.
    const end = sx(Math.max(bar.finish_s, this.data.round_s));
    group.append(
      s("rect", { class: "bar-hit", x: 0, y, width: end + em * 4.5, height }),
      s("rect", { class: "compute", x: start, y, width: Math.max(0, from - start), height: thick }),
      s("rect", {
        class: "upload",
        x: from,
        y,
        width: Math.max(0.5, sx(bar.finish_s) - from),
        height: thick,
        style: { fill: ink(colour) },
      }),
    );
    if (start > left) group.append(s("rect", { class: "wait", x: left, y, width: start - left, height: thick }));
    if (Number.isFinite(bar.measured_s) && !(bar.measured_s > this.data.now_s)) {
      group.append(
        s("line", { class: "measured", x1: sx(bar.measured_s), x2: sx(bar.measured_s), y1: y - 1, y2: y + thick + 1 }),
      );
    }
    if (height >= em * 0.9) {
      const name = String(bar.name);
      const text = name.length > 18 ? `${name.slice(0, 17)}…` : name;
      group.append(
        s("text", { class: "tick", x: left - em * 0.5, y: y + thick / 2, "text-anchor": "end", dy: "0.35em" }, text),
      );
      group.append(
        s("text", { class: "share", x: end + em * 0.4, y: y + thick / 2, dy: "0.35em" }, bar.label ?? share(bar.share)),
      );
    }
    this.rows.set(bar.id, group);
    return group;
  }
}

/** What the bars' parts mean. */
export function barsLegend(cell = false) {
  const key = (name, text, extra = "") => h("span", { class: `key ${extra}` }, h("i", { class: `key-${name}` }), text);
  return h(
    "div",
    { class: "legend", "aria-hidden": "true" },
    cell && key("wait", "waits for the model", "wait-key"),
    key("compute", "trains"),
    key("upload", "uploads"),
    key("end", "round ends"),
    cell && key("measured", "measured finish", "measured-key"),
  );
}
