// The leader board: who has reached the target, and who is ahead on the way there.

import { breakable, h } from "../lib/dom.js";
import { fixed, percent, plural, significant } from "../lib/format.js";
import { swatch } from "./ink.js";
import { readAt } from "./lines.js";

const times = (ratio) => `${fixed(ratio, ratio < 10 ? 1 : 0)} ×`;

/** The order at a time, null for now: by mean time to the target of those whose median seed gets there, then by accuracy. */
export function standings(policies, table, until) {
  const times = new Map(table.map((row) => [row.policy, row.time_to_target]));
  return policies
    .map((policy) => {
      const { median_s: median, mean_s: mean, n } = times.get(policy.line) ?? {};
      const line = { x: policy.clock_s ?? [], y: policy.mean, step: true };
      const last = line.x.at(-1) ?? 0;
      return {
        line: policy.line,
        seeds: n,
        finish: Number.isFinite(median) && Number.isFinite(mean) && mean <= (until ?? Infinity) ? mean : null,
        accuracy: readAt(line, Math.min(until ?? Infinity, last)),
      };
    })
    .sort((a, b) => (a.finish ?? Infinity) - (b.finish ?? Infinity) || (b.accuracy ?? -1) - (a.accuracy ?? -1) || 0);
}

/** The moment of the win, before anybody else is there to be compared with; null if the leader of all seeds is not first. */
function first({ line, finish, seeds }, lead, target) {
  if (line !== lead.policy || finish === null) return null;
  return { text: `${line} reaches ${significant(100 * target, 3)} % first, after ${fixed(finish, 0)} s`, small: `mean of ${plural(seeds, "seed")}`, significant: lead.significant };
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
    // In a replay the server's sentence may be told once both of whom it tells have crossed the line.
    const { lead } = curves;
    const told = lead && (until === null || (done.has(lead.policy) && done.has(lead.other)));
    this.say(told ? lead : lead && order.length ? first(order[0], lead, target) : null);
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
    this.said.classList.toggle("unsure", !headline.significant);
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
