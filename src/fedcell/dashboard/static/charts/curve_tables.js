// The tables beside the curves: accuracy and rounds of each policy.

import { breakable, h } from "../lib/dom.js";
import { fixed, plural, seconds, significant } from "../lib/format.js";
import { makeTable } from "../lib/table.js";
import { swatch } from "./ink.js";

const MINUS = "–";

/** When the target was reached, as the command line says it: 171 s, never (1/5); not yet while runs are under way. */
function reached(time, soFar) {
  if (!time || !time.n) return MINUS;
  const when = Number.isFinite(time.median_s) ? `${fixed(time.median_s, 0)} s` : soFar ? "not yet" : "never";
  return time.reached === time.n ? when : `${when} (${time.reached}/${time.n})`;
}

/** What it cost to reach the target; unknown where real devices trained. */
function cost(energy, soFar) {
  if (!energy || !energy.n) return MINUS;
  const when = Number.isFinite(energy.median_j)
    ? `${significant(energy.median_j, 4)} J`
    : 2 * energy.reached > energy.n
      ? "unknown"
      : soFar
        ? "not yet"
        : "never";
  return energy.reached === energy.n ? when : `${when} (${energy.reached}/${energy.n})`;
}

/** A mean with half its 95 % interval, such as 87.41 ± 0.62. */
function mean(document, scale = 1, digits = 2) {
  const { mean: value, half } = document ?? {};
  if (!Number.isFinite(value)) return MINUS;
  return [
    fixed(scale * value, digits),
    Number.isFinite(half) ? h("span", { class: "half" }, ` ± ${fixed(scale * half, digits)}`) : null,
  ];
}

/** What went wrong with a policy's runs, in a small line below its name; nothing if nothing did. */
function trouble(row) {
  const parts = [
    row.diverged > 0 && `diverged: ${row.diverged} of ${plural(row.seeds, "seed")}`,
    row.failed > 0 && `failed: ${plural(row.failed, "run")}`,
  ].filter(Boolean);
  return parts.length ? h("small", { class: "trouble" }, parts.join(", ")) : null;
}

function accuracyColumns(target, name, soFar, by) {
  return [
    { head: "policy", left: true, cell: (row) => [name(row), trouble(row)] },
    {
      head: "best, %",
      title: "highest accuracy of a run, mean over seeds ± 95 % interval",
      cell: (row) => mean(row.best, 100),
    },
    {
      head: "last, %",
      title: "accuracy of a run's last model, mean over seeds ± 95 % interval",
      cell: (row) => mean(row.last, 100),
    },
    {
      head: target ? `to ${significant(100 * target, 3)} %` : "to target",
      title: `${by} to this accuracy, median over seeds; (1/5): reached with 1 of 5 seeds`,
      cell: (row) => (by === "energy" ? cost(row.energy_to_target, soFar) : reached(row.time_to_target, soFar)),
    },
  ];
}

function roundColumns(name, by) {
  const cost =
    by === "energy"
      ? { head: "J in all", title: "joules that all devices spend in a run", cell: (row) => mean(row.joules, 1, 1) }
      : { head: "s per round", title: "seconds per round", cell: (row) => mean(row.round_s) };
  return [
    { head: "policy", left: true, cell: name },
    { head: "devices", title: "scheduled devices per round", cell: (row) => mean(row.devices) },
    cost,
    { head: "rounds", title: "rounds of a run", cell: (row) => mean(row.rounds, 1, 1) },
  ];
}

/**
 * Two tables of a /curves document; while no seed is finished by all policies, they are of the same moment in all.
 * `focus(policy or null)` is called as rows are pointed at.
 */
export function curveTables(styles, curves, { target, seeds: allSeeds, by, focus }) {
  const rows = curves?.table ?? [];
  const soFar = Number.isFinite(curves?.so_far_s) ? curves.so_far_s : null;
  const byPolicy = new Map(rows.map((row) => [row.policy, row]));
  const all = styles.map((style) => ({ ...byPolicy.get(style.line), policy: style.line, style }));
  const name = (row) =>
    h(
      "span",
      { class: "policy" },
      swatch(row.style.colour, row.style.dash),
      h("span", { class: "policy-line", title: row.policy }, breakable(row.policy)),
    );
  const counts = rows.map((row) => row.seeds ?? 0).filter((count) => count > 0 || !rows.some((row) => row.failed));
  const [fewest, seeds] = [Math.min(...counts), Math.max(0, ...counts)];
  const some = fewest < seeds ? `${fewest} to ` : allSeeds > seeds ? `${seeds} of ` : "";
  const moment = soFar === null ? "" : ` · so far, at ${seconds(soFar, 3)}`;
  const of = seeds ? `${moment} · ${some}${plural(Math.max(seeds, allSeeds ?? 0), "seed")}${seeds > 1 ? ", ± 95 %" : ""}` : "";
  const props = (row) => ({
    "data-policy": row.policy,
    onpointerenter: () => focus(row.policy),
    onpointerleave: () => focus(null),
  });
  return [
    makeTable(`Accuracy${of}`, accuracyColumns(target, name, soFar !== null, by), all, props),
    makeTable(`Rounds${of}`, roundColumns(name, by), all, props),
  ];
}
