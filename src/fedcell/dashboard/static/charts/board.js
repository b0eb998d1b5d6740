// The leader board: who has reached the target, and who is ahead on the way there.

import { breakable, h } from "../lib/dom.js";
import { fixed, percent, plural, significant } from "../lib/format.js";
import { swatch } from "./ink.js";
import { readAt } from "./lines.js";

const times = (ratio) => `${fixed(ratio, ratio < 10 ? 1 : 0)} ×`;

/** The order at a time, null for now: by time to the target, then by accuracy. */
export function standings(policies, table, until) {
  const times = new Map(table.map((row) => [row.policy, row.time_to_target]));
  return policies
    .map((policy) => {
      const { median_s: median, n } = times.get(policy.line) ?? {};
      const line = { x: policy.clock_s ?? [], y: policy.mean, step: true };
      const last = line.x.at(-1) ?? 0;
      return {
        line: policy.line,
        seeds: n,
        finish: Number.isFinite(median) && median <= (until ?? Infinity) ? median : null,
        accuracy: readAt(line, Math.min(until ?? Infinity, last)),
      };
    })
    .sort((a, b) => (a.finish ?? Infinity) - (b.finish ?? Infinity) || (b.accuracy ?? -1) - (a.accuracy ?? -1) || 0);
}

/**
 * How many times sooner the leader is than greedy, the paper's policy, or else than the next; null where it is not.
 * `over` are the comparisons that may be told by now.
 */
export function headline(lead, over, target) {
  const found =
    over.find(({ policy }) => policy.split(":")[0] === "greedy") ??
    [...over].sort((a, b) => a.ratio - b.ratio)[0];
  if (!found || !(found.ratio >= 1.05)) return null;
  const interval = Number.isFinite(found.low) ? `, 95 % interval ${times(found.low)} to ${times(found.high)}` : "";
  return {
    text: `${lead.policy} reaches ${significant(100 * target, 3)} % ${times(found.ratio)} sooner than ${found.policy}`,
    small: `${plural(found.n, "seed")} in which both do, paired${interval}${found.significant ? "" : "; not significant"}`,
    sure: found.significant,
  };
}

/** The moment of the win, before anybody else is there to be compared with; null if the leader of all seeds is not first. */
function first({ line, finish, seeds }, lead, target) {
  if (line !== lead.policy || finish === null || lead.over.length === 0) return null;
  return { text: `${line} reaches ${significant(100 * target, 3)} % first, after ${fixed(finish, 0)} s`, small: `median of ${plural(seeds, "seed")}`, sure: true };
}

export class Board {
  constructor() {
    this.said = h("p", { class: "headline", hidden: true }, h("strong", {}), h("small", {}));
    this.list = h("ol", { class: "board-list" });
    this.rows = new Map();
    this.element = h("section", { class: "board", "aria-label": "Leader board", hidden: true }, this.said, this.list);
  }

  /** styles: [{line, colour, dash}]; curves: the document; until: the simulated second, null for now. */
  update(styles, curves, target, until) {
    const policies = curves?.policies?.filter((policy) => policy.clock_s?.length) ?? [];
    this.element.hidden = !policies.length || !(target > 0);
    if (this.element.hidden) return;
    const before = new Map([...this.list.children].map((row) => [row, row.offsetTop])); // first: later it costs a layout
    const looks = new Map(styles.map((style) => [style.line, style]));
    const order = standings(policies, curves.table, until);
    const done = new Set(order.filter(({ finish }) => finish !== null).map(({ line }) => line));
    const over = (curves.lead?.over ?? []).filter(({ policy }) => until === null || done.has(policy));
    const sure = new Map(over.filter(({ significant: sure }) => sure).map((one) => [one.policy, one.ratio]));
    const leads = curves.lead && (until === null || done.has(curves.lead.policy));
    this.say(leads ? (headline(curves.lead, over, target) ?? first(order[0], curves.lead, target)) : null);
    const rows = order.map((one) => {
      const row = this.row(looks.get(one.line) ?? { line: one.line });
      row.accuracy.textContent = percent(one.accuracy, 1);
      row.bar.style.setProperty("width", `${100 * Math.min(1, Math.max(0, one.accuracy ?? 0))}%`);
      row.finish.textContent = one.finish === null ? "" : `${fixed(one.finish, 0)} s`;
      row.factor.textContent = sure.has(one.line) ? times(sure.get(one.line)) : "";
      return row.element;
    });
    this.place(rows, before);
  }

  say(headline) {
    this.said.hidden = !headline;
    if (!headline) return;
    this.said.firstChild.textContent = headline.text;
    this.said.lastChild.textContent = headline.small;
    this.said.classList.toggle("unsure", !headline.sure);
  }

  row({ line, colour, dash }) {
    const key = `${line} ${colour} ${dash}`;
    if (!this.rows.has(key)) {
      const parts = {
        bar: h("i", { "aria-hidden": "true" }),
        accuracy: h("b", {}),
        finish: h("span", { class: "finish-time" }),
        factor: h("small", { class: "factor", title: "times as long as the leader" }),
      };
      const name = h("span", { class: "policy-line", title: line }, breakable(line));
      parts.element = h("li", { "data-policy": line }, swatch(colour, dash), name, parts.accuracy, parts.finish, parts.factor, parts.bar);
      this.rows.set(key, parts);
    }
    return this.rows.get(key);
  }

  /** In their order; whoever changes places moves there, unless motion is unwanted. */
  place(rows, before) {
    const shown = [...before.keys()];
    if (rows.length === shown.length && rows.every((row, i) => row === shown[i])) return;
    this.list.replaceChildren(...rows);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const after = rows.map((row) => row.offsetTop); // all of them before anything moves: one layout, not one a row
    for (const [i, row] of rows.entries()) {
      const moved = (before.get(row) ?? after[i]) - after[i];
      if (moved) row.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 250, easing: "ease-out" });
    }
  }
}
