// Lines over two axes, as SVG: steps, bands, marks and a reading under the pointer.
// Written by hand: 200 lines paint at once, where a plotting library would be megabytes before the first curve.

import { h, rem, s } from "../lib/dom.js";
import { significant } from "../lib/format.js";
import { dasharray, ink, swatch } from "./ink.js";
import { band, extent, points, readAt, ticks } from "./lines.js";
import { makeZoomable } from "./zoom.js";

/** A chart that fills the width of its host and is drawn again whenever that or the data change. */
export class LineChart {
  constructor(host, options) {
    this.options = {
      xTicks: 7,
      yTicks: 6,
      xFormat: (v) => significant(v, 5),
      yFormat: (v) => significant(v, 5),
      ...options,
    };
    this.data = { series: [], marks: [] };
    this.focused = null;
    this.clip = `plot-${Math.random().toString(36).slice(2)}`;
    this.zoomed = null;
    this.svg = s("svg", {
      class: "chart",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `${options.label}; plus and minus zoom, arrow keys move, 0 shows all`,
    });
    this.tip = h("div", { class: "tip", hidden: true });
    this.empty = h("p", { class: "chart-empty", hidden: true });
    host.classList.add("chart-host");
    host.append(this.svg, this.tip, this.empty);
    this.host = host;
    this.svg.addEventListener("pointermove", (event) => this.read(event));
    this.svg.addEventListener("pointerleave", () => this.unread());
    makeZoomable(this);
    new ResizeObserver(() => this.draw()).observe(host);
  }

  update(data) {
    this.data = { marks: [], ...data };
    this.draw();
  }

  /** Show a part only, {x0, x1, y0, y1}, or all: null. */
  zoom(part) {
    this.zoomed = part;
    this.draw();
  }

  /**
   * Show the lines as far as this x, or all of them: null. The lines stay as they are drawn and are uncovered, so a
   * replay costs little however many there are.
   */
  seek(until) {
    this.data.until = until;
    if (!this.scales) return;
    const { sx, sy, x0, x1, y0, y1, left, right } = this.scales;
    const end = Number.isFinite(until) ? Math.max(left, Math.min(right, sx(until))) : right + 2;
    this.cover.setAttribute("width", Math.max(0, end - left));
    for (const { line, dot } of this.heads) {
      const x = Math.min(until ?? Infinity, line.x.at(-1) ?? -Infinity);
      const y = readAt(line, x);
      const inside = Number.isFinite(y) && x >= x0 && x <= x1 && y >= y0 && y <= y1;
      dot.setAttribute("visibility", inside && Number.isFinite(until) ? "visible" : "hidden");
      if (inside) dot.setAttribute("transform", `translate(${sx(x).toFixed(1)} ${sy(y).toFixed(1)})`);
    }
    for (const [x, mark] of this.crossings) mark.setAttribute("visibility", x <= (until ?? Infinity) ? "visible" : "hidden");
  }

  /** Let one line stand out, or none. */
  focus(name) {
    this.focused = name;
    for (const group of this.svg.querySelectorAll("[data-line]")) {
      group.classList.toggle("faded", name !== null && group.dataset.line !== name);
      group.classList.toggle("lit-line", group.dataset.line === name);
    }
  }

  draw() {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    if (width < 40 || height < 40) return;
    const em = rem() * 0.8;
    const { series, marks, cursor } = this.data;
    this.whole = extent(series, marks, { ...this.options, ...this.data });
    const { x0, x1, y0, y1 } = this.zoomed ?? this.whole;
    const longest = ticks(y0, y1, this.options.yTicks).map((y) => String(this.options.yFormat(y)).length);
    const left = em * (2.2 + 0.6 * Math.max(3, ...longest));
    const right = width - em;
    const top = em * 0.9;
    const bottom = height - em * 3.1;
    const sx = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
    const sy = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - top);
    this.scales = { sx, sy, x0, x1, y0, y1, left, right, top, bottom };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.cross = s("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" });
    this.svg.replaceChildren(
      ...this.axes(sx, sy, { x0, x1, y0, y1, left, right, top, bottom, em }),
      ...this.lines(sx, sy),
      ...this.finish(sx, sy, em),
      ...this.markers(sx, sy, em),
      ...(Number.isFinite(cursor)
        ? [s("line", { class: "cursor", x1: sx(cursor), x2: sx(cursor), y1: top, y2: bottom })]
        : []),
      this.cross,
    );
    this.empty.hidden = series.some((line) => line.x.length > 0);
    this.empty.textContent = this.data.empty ?? "";
    if (this.focused !== null) this.focus(this.focused);
    this.seek(this.data.until ?? null);
    this.drawn?.();
  }

  axes(sx, sy, { x0, x1, y0, y1, left, right, top, bottom, em }) {
    const { xLabel, yLabel, xFormat, yFormat, xTicks, yTicks } = this.options;
    const fit = Math.max(2, Math.min(xTicks, Math.floor((right - left) / (em * 5))));
    const parts = [];
    const goal = this.data.finish ? sy(this.data.finish.y) : -Infinity; // which is named there, in two rows
    for (const y of ticks(y0, y1, yTicks)) {
      parts.push(s("line", { class: "grid", x1: left, x2: right, y1: sy(y), y2: sy(y) }));
      if (sy(y) < goal - em * 2.2 || sy(y) > goal + em * 1.2)
        parts.push(
          s("text", { class: "tick", x: left - em * 0.5, y: sy(y), "text-anchor": "end", dy: "0.35em" }, yFormat(y)),
        );
    }
    for (const x of ticks(x0, x1, fit, this.options.snap ? 1 : 0)) {
      parts.push(s("line", { class: "grid", x1: sx(x), x2: sx(x), y1: top, y2: bottom }));
      parts.push(s("text", { class: "tick", x: sx(x), y: bottom + em * 1.3, "text-anchor": "middle" }, xFormat(x)));
    }
    parts.push(s("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    parts.push(
      s("text", { class: "axis-label", x: (left + right) / 2, y: bottom + em * 2.7, "text-anchor": "middle" }, xLabel),
    );
    const y = (top + bottom) / 2;
    parts.push(
      s(
        "text",
        { class: "axis-label", x: em, y, "text-anchor": "middle", transform: `rotate(-90 ${em} ${y})` },
        yLabel,
      ),
    );
    return parts;
  }

  /** Bands below all lines, and a halo under each line, so that many stay legible where they cross. */
  lines(sx, sy) {
    const bands = [];
    const lines = [];
    for (const line of [...this.data.series].reverse()) {
      // the first policy is the one the others are held against: it lies on top
      const { colour, name, dash, x, y } = line;
      const marked = { "data-line": name, class: line.leads ? "leader" : "" };
      if (line.low && line.high)
        bands.push(
          s(
            "g",
            marked,
            s("path", { class: "band", d: band(line, sx, sy), style: { fill: ink(colour) } }),
          ),
        );
      for (const seed of line.seeds ?? [])
        bands.push(
          s(
            "g",
            marked,
            s("path", { class: "seed", d: points(seed.x, seed.y, sx, sy, line.step), style: { stroke: ink(colour) } }),
          ),
        );
      if (line.raw)
        bands.push(
          s(
            "g",
            marked,
            s("path", { class: "raw", d: points(line.raw.x, line.raw.y, sx, sy, true), style: { stroke: ink(colour) } }),
          ),
        );
      const group = s("g", marked);
      const d = points(x, y, sx, sy, line.step);
      if (dash !== "none")
        group.append(
          s("path", { class: "line-halo", d, "stroke-dasharray": dasharray(dash) }),
          s("path", { class: "line", d, "stroke-dasharray": dasharray(dash), style: { stroke: ink(colour) } }),
        );
      if (line.points) {
        const dots = x.map(
          (at, i) =>
            Number.isFinite(y[i]) &&
            s("circle", { class: "dot", cx: sx(at), cy: sy(y[i]), r: 3, style: { fill: ink(colour) } }),
        );
        group.append(...dots.filter(Boolean));
      }
      lines.push(group);
    }
    const { left, right, top, bottom } = this.scales;
    this.cover = s("rect", { x: left, y: top - 2, width: right - left + 2, height: bottom - top + 4 });
    const frame = s("clipPath", { id: this.clip }, this.cover);
    return [s("defs", {}, frame), s("g", { "clip-path": `url(#${this.clip})` }, bands, lines)];
  }

  /** The line that all run for, where each crosses it, and a dot at the head of each curve. */
  finish(sx, sy, em) {
    const { left, right, x0, x1, y0, y1 } = this.scales;
    const { finish } = this.data;
    const parts = [];
    this.crossings = [];
    if (finish && finish.y > y0 && finish.y < y1) {
      const y = sy(finish.y);
      // Two rows of squares, one shifted by a square: a chequered line.
      for (const [row, shift] of [
        [-2, 0],
        [2, 4],
      ])
        parts.push(
          s("line", { class: "finish", x1: left, x2: right, y1: y + row, y2: y + row, "stroke-dashoffset": shift }),
        );
      const at = { x: left - em * 0.5, "text-anchor": "end" }; // beside the curves, not over them
      parts.push(s("text", { class: "finish-label" }, s("tspan", { ...at, y: y - em * 0.75 }, "target "), s("tspan", { ...at, y: y + em * 0.35 }, finish.label)));
      for (const { name, colour, x, title } of finish.crossings) {
        if (!(x >= x0 && x <= x1)) continue;
        const mark = s(
          "g",
          { class: "crossing", "data-line": name },
          s("circle", { cx: sx(x), cy: y, r: em * 0.5, style: { stroke: ink(colour) } }),
          s("title", {}, title),
        );
        this.crossings.push([x, mark]);
      }
    }
    this.heads = this.data.series.map((line) => ({
      line,
      dot: s(
        "g",
        { class: "head", "data-line": line.name, visibility: "hidden" },
        s("circle", { r: em * 0.42, style: { fill: ink(line.colour) } }),
      ),
    }));
    return [...parts, ...this.crossings.map(([, mark]) => mark), ...this.heads.map(({ dot }) => dot)];
  }

  /** Labels stand in a row each at the top, where no curve is, with a stem down to the point. */
  markers(sx, sy, em) {
    const { top, right } = this.scales;
    return this.data.marks
      .filter((mark) => Number.isFinite(mark.x) && Number.isFinite(mark.y))
      .flatMap((mark, i) => {
        const x = sx(mark.x);
        const y = top + em * (0.9 + 1.4 * i);
        const near = x > right - em * 12;
        return [
          s("line", { class: "mark-stem", x1: x, x2: x, y1: y - em * 0.8, y2: sy(mark.y) }),
          s("circle", { class: "mark", cx: x, cy: sy(mark.y), r: em * 0.45, style: { stroke: ink(mark.colour) } }),
          s(
            "text",
            { class: "mark-label", x: near ? x - em * 0.4 : x + em * 0.4, y, "text-anchor": near ? "end" : "start" },
            mark.label,
          ),
        ];
      });
  }

  read(event) {
    if (!this.scales || this.dragging || !this.data.series.some((line) => line.x.length) || this.data.silent) return;
    const { sx, x0, x1, left, right } = this.scales;
    const box = this.svg.getBoundingClientRect();
    const px = event.clientX - box.left;
    if (px < left || px > right) return this.unread();
    const raw = Math.min(this.data.until ?? Infinity, x0 + ((px - left) / (right - left)) * (x1 - x0));
    const x = this.options.snap ? Math.round(raw) : raw;
    this.cross.setAttribute("x1", sx(x));
    this.cross.setAttribute("x2", sx(x));
    this.cross.setAttribute("visibility", "visible");
    const rows = this.data.series
      .map((line) => ({ line, y: readAt(line, x) }))
      .filter(({ y }) => Number.isFinite(y))
      .sort((a, b) => b.y - a.y);
    const format = this.options.tipFormat ?? this.options.yFormat;
    this.tip.replaceChildren(
      h("strong", {}, this.options.tipTitle ? this.options.tipTitle(x) : this.options.xFormat(x)),
      ...rows.map(({ line, y }) =>
        h("div", {}, swatch(line.colour, line.dash), h("span", {}, line.name), h("b", {}, format(y))),
      ),
    );
    this.tip.hidden = false;
    const over = px > (left + right) / 2;
    this.tip.style.setProperty("left", over ? "auto" : `${px + 14}px`);
    this.tip.style.setProperty("right", over ? `${box.width - px + 14}px` : "auto");
    return undefined;
  }

  unread() {
    this.tip.hidden = true;
    this.cross?.setAttribute("visibility", "hidden");
  }
}
