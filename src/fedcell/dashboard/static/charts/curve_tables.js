// The tables beside the curves: accuracy and rounds of each policy.

import { breakable, h } from "../lib/dom.js";
import { bytes, fixed, plural, seconds, significant } from "../lib/format.js";
import { makeTable } from "../lib/table.js";
import { swatch } from "./ink.js";

const MINUS = "–";

/** The mean time or energy to the target, such as 171 s, or 402 s (1/5) where 1 of 5 seeds reached it; not yet while runs are under way. */
function reached(to, mean, unit, soFar) {
  if (!to?.n) return MINUS;
  if (to.reached === 0) return soFar ? `not yet (0/${to.n})` : `never (0/${to.n})`;
  const when = Number.isFinite(mean) ? unit(mean) : soFar ? "not yet" : "unknown";
  return to.reached === to.n ? when : `${when} (${to.reached}/${to.n})`;
}

const inTime = (row, soFar) => reached(row.time_to_target, row.time_to_target?.mean_s, (value) => `${fixed(value, 0)} s`, soFar);
const inEnergy = (row, soFar) => reached(row.energy_to_target, row.energy_to_target?.mean_j, (value) => `${significant(value, 4)} J`, soFar);

/** A mean with half its 95 % interval, such as 87.41 ± 0.62; with its ends where ± would leave what is possible. */
function mean(document, scale = 1, digits = 2) {
  const { mean: value, half, low, high } = document ?? {};
  if (!Number.isFinite(value)) return MINUS;
  const ends = Number.isFinite(low) ? ` [${fixed(scale * low, digits)}, ${fixed(scale * high, digits)}]` : ` ± ${fixed(scale * half, digits)}`;
  return [fixed(scale * value, digits), Number.isFinite(half) ? h("span", { class: "half" }, ends) : null];
}

/** What went wrong with a policy's runs, in a small line below its name; nothing if nothing did. */
function trouble(row, soFar) {
  const missing = soFar === null ? (row.of_seeds ?? 0) - (row.seeds ?? 0) - (row.failed ?? 0) : 0;
  const parts = [
    row.diverged > 0 && `diverged: ${row.diverged} of ${plural(row.seeds, "seed")}`,
    row.failed > 0 && `failed: ${plural(row.failed, "run")}`,
    missing > 0 && `no round fits into the budget: ${missing} of ${plural(row.of_seeds, "seed")}`,
  ].filter(Boolean);
  return parts.length ? h("small", { class: "trouble" }, parts.join(", ")) : null;
}

function accuracyColumns(target, name, soFar, by, never) {
  return [
    { head: "policy", left: true, cell: (row) => [name(row), trouble(row, soFar)] },
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
      title: `mean ${by} to this accuracy over all seeds${never}; (1/5): reached with 1 of 5 seeds`,
      cell: (row) => (by === "energy" ? inEnergy : inTime)(row, soFar !== null),
    },
  ];
}

/** How long devices trained and what they sent, where policies differ in it. */
function effortColumns(rows) {
  const known = rows.filter((row) => Number.isFinite(row.epochs?.mean));
  if (new Set(known.map((row) => `${row.epochs.mean} ${row.bits.mean}`)).size < 2) return [];
  return [
    { head: "epochs", title: "local epochs of a device in a round", cell: (row) => significant(row.epochs?.mean, 3) },
    { head: "bits", title: "bits a weight of an upload", cell: (row) => significant(row.bits?.mean, 3) },
    { head: "sent", title: "all uploads of a run together", cell: (row) => bytes(row.sent_bytes?.mean) },
  ];
}

function roundColumns(name, by, rows) {
  const cost =
    by === "energy"
      ? { head: "J in all", title: "joules that all devices spend in a run", cell: (row) => mean(row.joules, 1, 1) }
      : { head: "s per round", title: "seconds per round", cell: (row) => mean(row.round_s) };
  return [
    { head: "policy", left: true, cell: name },
    { head: "devices", title: "scheduled devices per round", cell: (row) => mean(row.devices) },
    cost,
    { head: "rounds", title: "rounds of a run", cell: (row) => mean(row.rounds, 1, 1) },
    ...effortColumns(rows),
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
  const limit = by === "energy" ? curves?.limit_j : curves?.limit_s;
  const never = Number.isFinite(limit) ? `, where never counts as ${significant(limit, 4)} ${by === "energy" ? "J" : "s"}` : "";
  const to = (row) => (by === "energy" ? row.energy_to_target : row.time_to_target);
  const partial = rows.some((row) => to(row)?.reached > 0 && to(row).reached < to(row).n);
  const some = fewest < seeds ? `${fewest} to ` : allSeeds > seeds ? `${seeds} of ` : "";
  const moment = soFar === null ? "" : ` · so far, at ${seconds(soFar, 3)}`;
  const of = seeds ? `${moment} · ${some}${plural(Math.max(seeds, allSeeds ?? 0), "seed")}${rows.some((row) => Number.isFinite(row.best?.half)) ? ", ± 95 %" : ""}` : "";
  const props = (row) => ({
    "data-policy": row.policy,
    onpointerenter: () => focus(row.policy),
    onpointerleave: () => focus(null),
  });
  return [
    makeTable(`Accuracy${of}`, accuracyColumns(target, name, soFar, by, never), all, props),
    partial && soFar === null ? h("p", { class: "note" }, `The last column is a mean over all seeds${never}; (1/5) beside it: 1 of 5 seeds reached it.`) : "",
    makeTable(`Rounds${of}`, roundColumns(name, by, rows), all, props),
  ];
}
