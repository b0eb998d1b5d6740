// The critical-difference diagram: mean ranks on a line, the best on the left, a bar over those who cannot be told apart.

import { h, rem, s } from "../lib/dom.js";
import { fixed } from "../lib/format.js";
import { ink } from "./ink.js";

const LEAST_EM = 44; // narrower, it scrolls
const LONGEST = 26;

const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** Each span with the first level on which it overlaps no earlier one. */
export function levels(spans) {
  const placed = [];
  for (const [begin, end] of spans) {
    const taken = placed.filter((one) => begin <= one.end && one.begin <= end).map((one) => one.level);
    let level = 0;
    while (taken.includes(level)) level += 1;
    placed.push({ begin, end, level });
  }
  return placed;
}

export class RanksChart {
  constructor(host, label) {
    this.svg = s("svg", { class: "ranks", role: "img", "aria-label": label });
    host.append(this.svg);
    this.host = host;
    this.data = null;
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** `policies`: [{line, colour, rank}], the best first; `groups`: lines that are not significantly different; `critical`: ranks. */
  update(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const em = 0.8 * rem();
    const width = Math.max(this.host.clientWidth, LEAST_EM * em);
    if (!this.data || this.host.clientWidth < 40) return;
    const { policies, groups, critical } = this.data;
    const k = Math.max(2, policies.length);
    const half = Math.ceil(policies.length / 2);
    const longest = Math.max(...policies.map(({ line }) => short(line).length));
    const side = em * (4.4 + 0.62 * longest);
    const x = (rank) => side + ((rank - 1) / (k - 1)) * (width - 2 * side);
    const ranks = new Map(policies.map(({ line, rank }) => [line, rank]));
    const bars = levels(groups.map((lines) => [ranks.get(lines[0]), ranks.get(lines.at(-1))]));
    const axis = 4.4 * em;
    const row = 1.7 * em;
    const first = axis + em * (2 + 0.8 * (1 + Math.max(-1, ...bars.map(({ level }) => level))));
    const height = first + row * half;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(
      ...this.scale(x, k, critical, axis, em),
      ...policies.map((policy, i) => this.policy(policy, i < half, first + row * (i < half ? i : policies.length - 1 - i), { x, axis, side, width, em })),
      ...bars.map(({ begin, end, level }) => {
        const y = axis + em * (0.9 + 0.8 * level);
        return s("line", { class: "alike", x1: x(begin) - 0.3 * em, x2: x(end) + 0.3 * em, y1: y, y2: y });
      }),
    );
  }

  scale(x, k, critical, axis, em) {
    const parts = [s("line", { class: "axis", x1: x(1), x2: x(k), y1: axis, y2: axis })];
    const every = Math.max(1, Math.ceil((2 * em) / (x(2) - x(1)))); // names of ranks must not touch
    for (let rank = 1; rank <= k; rank++) {
      parts.push(s("line", { class: "axis", x1: x(rank), x2: x(rank), y1: axis - 0.4 * em, y2: axis }));
      if ((rank - 1) % every === 0)
        parts.push(s("text", { class: "tick", x: x(rank), y: axis - 0.7 * em, "text-anchor": "middle" }, String(rank)));
    }
    const y = 1.9 * em;
    parts.push(s("line", { class: "critical", x1: x(1), x2: x(1 + critical), y1: y, y2: y }));
    for (const at of [x(1), x(1 + critical)])
      parts.push(s("line", { class: "critical", x1: at, x2: at, y1: y - 0.4 * em, y2: y + 0.4 * em }));
    parts.push(s("text", { x: x(1), y: y - 0.8 * em }, `critical difference ${fixed(critical, 2)}`));
    return parts;
  }

  /** From its place on the axis down to its name, on the left or on the right. */
  policy({ line, colour, rank }, left, y, { x, axis, side, width, em }) {
    const end = left ? side - 0.4 * em : width - side + 0.4 * em;
    const text = left ? `${short(line)}  ${fixed(rank, 2)}` : `${fixed(rank, 2)}  ${short(line)}`;
    return s(
      "g",
      { class: "ranked", "data-line": line },
      s("path", { d: `M${x(rank)} ${axis}V${y}H${end}`, style: { stroke: ink(colour) } }),
      s("circle", { cx: x(rank), cy: axis, r: 0.32 * em, style: { fill: ink(colour) } }),
      s("text", { x: end + (left ? -0.4 : 0.4) * em, y: y + 0.3 * em, "text-anchor": left ? "end" : "start" }, text),
      s("title", {}, `${line}: mean rank ${fixed(rank, 2)}`),
    );
  }
}
