// Lines over two axes, as SVG: steps, bands, marks and a reading under the pointer.
// Written by hand: 200 lines paint at once, where a plotting library would be megabytes before the first curve.

import { h, rem, s } from "../lib/dom.js";
import { significant } from "../lib/format.js";

const DASHES = { "-": "", "--": "7 4", "-.": "9 3 2 3", ":": "2 3" };

export const dasharray = (dash) => DASHES[dash] ?? "";

/** A policy's colour as the theme shows it: app.css has one for each, of enough contrast on its ground. */
export const ink = (colour) =>
  /^#[0-9a-f]{6}$/.test(colour ?? "") ? `var(--c-${colour.slice(1)}, ${colour})` : "var(--c-000000)";

/** Round places between two numbers, about so many; `least` apart, 1 for what is counted. */
export function ticks(low, high, count, least = 0) {
  if (!(high > low)) return [low];
  const rough = Math.max(least, (high - low) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A short sample of a line, for legends and tables: the colour and the dash together. */
export function swatch(colour, dash) {
  return s(
    "svg",
    { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" },
    s("line", { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": dasharray(dash), style: { stroke: ink(colour) } }),
  );
}

const numbers = (values) => (values ?? []).filter((value) => Number.isFinite(value));

function extent(series, marks, options) {
  const xs = series.flatMap((line) => numbers(line.x));
  const ys = series.flatMap((line) => [...numbers(line.y), ...numbers(line.low), ...numbers(line.high)]);
  for (const seed of series.flatMap((line) => line.seeds ?? [])) ys.push(...numbers(seed.y));
  marks.forEach((mark) => (numbers([mark.x, mark.y]).length === 2 ? (xs.push(mark.x), ys.push(mark.y)) : 0));
  const most = (values, least) => values.reduce((a, b) => Math.max(a, b), least);
  const fewest = (values, start) => values.reduce((a, b) => Math.min(a, b), start);
  const x0 = options.xMin ?? fewest(xs, Infinity);
  const x1 = options.xMax ?? most(xs, -Infinity);
  const y0 = options.yMin ?? fewest(ys, Infinity);
  const y1 = options.yMax ?? most(ys, -Infinity);
  return {
    x0: Number.isFinite(x0) ? x0 : 0,
    x1: x1 > x0 ? x1 : (Number.isFinite(x0) ? x0 : 0) + 1,
    y0: Number.isFinite(y0) ? y0 : 0,
    y1: y1 > y0 ? y1 : (Number.isFinite(y0) ? y0 : 0) + 1,
  };
}

/** The value of a step function, or of the nearest point, at x. */
function readAt(line, x) {
  const { x: xs, y: ys } = line;
  if (!xs.length || x < xs[0]) return null;
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  if (!line.step && low + 1 < xs.length && xs[low + 1] - x < x - xs[low]) low += 1;
  return ys[low];
}

function points(xs, ys, sx, sy, step) {
  let path = "";
  let lastX = -Infinity;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) continue;
    const x = sx(xs[i]);
    if (x - lastX < 0.4 && i < xs.length - 1) continue; // more than the eye can tell apart
    lastX = x;
    if (!path) path = `M${x.toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
    else path += step ? `H${x.toFixed(1)}V${sy(ys[i]).toFixed(1)}` : `L${x.toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
  }
  return path;
}

function band(line, sx, sy) {
  const keep = line.x.map((_, i) => i).filter((i) => Number.isFinite(line.low[i]) && Number.isFinite(line.high[i]));
  if (keep.length < 2) return "";
  const upper = points(
    keep.map((i) => line.x[i]),
    keep.map((i) => line.high[i]),
    sx,
    sy,
    line.step,
  );
  // Backwards along a step function: first down or up, then across.
  let lower = "";
  for (let j = keep.length - 1; j >= 0; j--) {
    const x = sx(line.x[keep[j]]).toFixed(1);
    const y = sy(line.low[keep[j]]).toFixed(1);
    if (j === keep.length - 1 || !line.step) lower += `L${x} ${y}`;
    else lower += `V${y}H${x}`;
  }
  return `${upper}${lower}Z`;
}

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
    this.svg = s("svg", { class: "chart", role: "img", "aria-label": options.label });
    this.tip = h("div", { class: "tip", hidden: true });
    this.empty = h("p", { class: "chart-empty", hidden: true });
    host.classList.add("chart-host");
    host.append(this.svg, this.tip, this.empty);
    this.host = host;
    this.svg.addEventListener("pointermove", (event) => this.read(event));
    this.svg.addEventListener("pointerleave", () => this.unread());
    new ResizeObserver(() => this.draw()).observe(host);
  }

  update(data) {
    this.data = { marks: [], ...data };
    this.draw();
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
    const { x0, x1, y0, y1 } = extent(series, marks, { ...this.options, ...this.data });
    const longest = ticks(y0, y1, this.options.yTicks).map((y) => String(this.options.yFormat(y)).length);
    const left = em * (2.2 + 0.6 * Math.max(3, ...longest));
    const right = width - em;
    const top = em * 0.9;
    const bottom = height - em * 3.1;
    const sx = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
    const sy = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - top);
    this.scales = { sx, sy, x0, x1, left, right, top, bottom };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.cross = s("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" });
    this.svg.replaceChildren(
      ...this.axes(sx, sy, { x0, x1, y0, y1, left, right, top, bottom, em }),
      ...this.lines(sx, sy),
      ...this.markers(sx, sy, em),
      ...(Number.isFinite(cursor)
        ? [s("line", { class: "cursor", x1: sx(cursor), x2: sx(cursor), y1: top, y2: bottom })]
        : []),
      this.cross,
    );
    this.empty.hidden = series.some((line) => line.x.length > 0);
    this.empty.textContent = this.data.empty ?? "";
    if (this.focused !== null) this.focus(this.focused);
  }

  axes(sx, sy, { x0, x1, y0, y1, left, right, top, bottom, em }) {
    const { xLabel, yLabel, xFormat, yFormat, xTicks, yTicks } = this.options;
    const fit = Math.max(2, Math.min(xTicks, Math.floor((right - left) / (em * 5))));
    const parts = [];
    for (const y of ticks(y0, y1, yTicks)) {
      parts.push(s("line", { class: "grid", x1: left, x2: right, y1: sy(y), y2: sy(y) }));
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
      if (line.low && line.high)
        bands.push(
          s(
            "g",
            { "data-line": name },
            s("path", { class: "band", d: band(line, sx, sy), style: { fill: ink(colour) } }),
          ),
        );
      for (const seed of line.seeds ?? [])
        bands.push(
          s(
            "g",
            { "data-line": name },
            s("path", { class: "seed", d: points(seed.x, seed.y, sx, sy, line.step), style: { stroke: ink(colour) } }),
          ),
        );
      const group = s("g", { "data-line": name });
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
    const frame = s(
      "clipPath",
      { id: this.clip },
      s("rect", { x: left, y: top - 2, width: right - left + 2, height: bottom - top + 4 }),
    );
    return [s("defs", {}, frame), s("g", { "clip-path": `url(#${this.clip})` }, bands, lines)];
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
    if (!this.scales || !this.data.series.some((line) => line.x.length) || this.data.silent) return;
    const { sx, x0, x1, left, right } = this.scales;
    const box = this.svg.getBoundingClientRect();
    const px = event.clientX - box.left;
    if (px < left || px > right) return this.unread();
    const raw = x0 + ((px - left) / (right - left)) * (x1 - x0);
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
