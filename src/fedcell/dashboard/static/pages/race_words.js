// A race in words.

import { joules, plural, seconds } from "../lib/format.js";

/** What a race is of, in one line. */
export function describe(race) {
  if (race.state === "damaged") return "cannot be read";
  const { cell, devices, task, budget_s: budget, rounds } = race.spec;
  const odd = [
    devices.mobility !== "redrawn" && devices.mobility,
    cell.channel && cell.channel !== "paper" && cell.channel,
    cell.rate && cell.rate !== "shannon" && cell.rate,
    cell.fading !== "none" && cell.fading,
    cell.law && cell.law !== "density" && `law ${cell.law}`,
    devices.battery_j && "batteries",
    cell.shadowing_db > 0 && `shadowing ${cell.shadowing_db} dB`,
    cell.csi_error_db > 0 && `SNR error ${cell.csi_error_db} dB`,
    devices.availability !== "always" && devices.availability,
    race.spec.slack && `slack ${race.spec.slack}`,
    race.spec.knowledge !== "perfect" && `knowledge ${race.spec.knowledge}`,
    race.spec.profiles !== "gradients" && `profiles ${race.spec.profiles}`,
    race.spec.epsilon && `epsilon ${race.spec.epsilon}`,
    task.aggregator !== "mean" && `aggregator ${task.aggregator}`,
    task.epochs !== 1 && (task.epochs < 1 ? `${task.epochs} epoch` : plural(task.epochs, "epoch")),
  ];
  const limit = Number.isFinite(budget) ? seconds(budget) : plural(rounds, "round");
  const energy = race.spec.budget_j ? joules(race.spec.budget_j) : null;
  return [
    plural(devices.count, "device"),
    `${cell.radius_m} m`,
    `${cell.bandwidth_hz / 1e6} MHz`,
    ...odd,
    `${task.data} ${task.partition}`,
    limit,
    energy,
    plural(race.seeds.length, "seed"),
  ]
    .filter(Boolean)
    .join(" · ");
}
