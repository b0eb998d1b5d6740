// Which run is looked at: its results file and experiment, its policy, its seed, and another policy beside it.

import { get, query } from "../lib/client.js";
import { field, h, setOptions } from "../lib/dom.js";
import { fileName } from "../lib/format.js";

const LIVE = "the current race";

/** What tells experiments from each other besides policy and seed. */
function experiment(run) {
  const others = Object.entries(run.differs ?? {}).filter(([name]) => !["policy", "seed"].includes(name));
  const text = others.map(([name, value]) => `${name.split(".").pop()} ${value}`).join(", ");
  return [fileName(run.store), run.source === "simulation" ? "" : run.source, text].filter(Boolean).join(" · ");
}

/** Four selects, each offering what the ones before it leave. */
export class RunPicker {
  constructor(changed) {
    this.runs = [];
    const names = ["experiment", "policy", "seed", "second"];
    this.selects = Object.fromEntries(names.map((name) => [name, h("select", { name, onchange: changed })]));
    const { experiment: first, policy, seed, second } = this.selects;
    this.fields = [field("results", first), field("policy", policy), field("seed", seed), field("beside it", second)];
  }

  /** The stored runs, and those of the race under way, which are not in the store yet. */
  async load(params) {
    const stored = (await get("api/runs?limit=1000")).runs.filter((run) => run.rounds > 0);
    const { races } = await get("api/races");
    const given = params?.get("run");
    if (given && !stored.some((run) => run.key === given)) {
      // One of thousands, or live.
      const { runs } = await get(query("api/runs", { keys: given, store: params.get("store") })).catch(() => ({ runs: [] }));
      stored.push(...runs);
    }
    const known = new Set(stored.map((run) => run.key));
    const live = races
      .filter((race) => ["running", "paused"].includes(race.state))
      .flatMap((race) =>
        race.runs
          .filter((run) => run.rounds > 0 && !known.has(run.key))
          .map((run) => ({
            ...race.policies.find(({ line }) => line === run.policy),
            ...run,
            source: "simulation",
            status: "running",
            store: LIVE,
            differs: {},
          })),
      );
    this.runs = [...live, ...stored];
    this.want(params);
  }

  /** Choose what an address names: a run, and one beside it. */
  want(params) {
    const key = params?.get("run");
    const fits = (run) => run.key === key && (!params.has("store") || run.store === params.get("store"));
    const wanted = key && (this.runs.find(fits) ?? this.runs.find((run) => run.key === key));
    this.missing = key && !wanted ? key : null; // another one must not stand under its address
    if (!wanted) return this.fill({});
    const second = this.runs.find((run) => run.key === params.get("with"))?.policy ?? "";
    return this.fill({ experiment: experiment(wanted), policy: wanted.policy, seed: String(wanted.seed), second });
  }

  /** The run, and the one beside it or null. */
  chosen() {
    this.fill({});
    const { policy, second } = this.selects;
    return [this.find(policy.value), second.value ? this.find(second.value) : null];
  }

  fill(wanted) {
    const { experiment: first, policy, seed, second } = this.selects;
    const unique = (values) => [...new Set(values)];
    setOptions(
      first,
      unique(this.runs.map(experiment)).map((name) => [name, name || "runs"]),
      wanted.experiment,
    );
    const inFirst = this.runs.filter((run) => experiment(run) === first.value);
    setOptions(
      policy,
      unique(inFirst.map((run) => run.policy)).map((name) => [name, name]),
      wanted.policy,
    );
    const ofPolicy = inFirst.filter((run) => run.policy === policy.value);
    setOptions(
      seed,
      unique(ofPolicy.map((run) => run.seed))
        .sort((a, b) => a - b)
        .map((number) => [String(number), String(number)]),
      wanted.seed,
    );
    const others = unique(
      inFirst.filter((run) => String(run.seed) === seed.value && run.policy !== policy.value).map((run) => run.policy),
    );
    setOptions(second, [["", "nothing"], ...others.map((name) => [name, name])], wanted.second);
  }

  find(policy) {
    return this.runs.find(
      (run) =>
        experiment(run) === this.selects.experiment.value &&
        run.policy === policy &&
        String(run.seed) === this.selects.seed.value,
    );
  }
}
