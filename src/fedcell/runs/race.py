"""Policies raced on equal terms: every policy with every seed, several runs at once, one core each."""

import csv
import io
import json
import math
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from fedcell import __version__
from fedcell.check import without_nan
from fedcell.defaults import TARGET_ACCURACY
from fedcell.errors import InputError
from fedcell.plots import Curve
from fedcell.runs import stats
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.loop import RoundRecord, simulate
from fedcell.sim.spec import Spec

if TYPE_CHECKING:
    from rich.table import Table

Watch = Callable[[Spec, RoundRecord | None], None]
"""Called after every round, and with None when a run has ended."""


@dataclass(frozen=True, eq=False)
class RaceResult:
    """What a race gave.

    Attributes:
        spec: the race, whose grid is of policies and seeds.
        policies: the policies, in the order given.
        seeds: the seeds that every policy finished; the statistics are of these alone, so that pairs are pairs.
        runs: by policy, one run for each of the seeds.
        complete: whether all runs were finished.
        target: the accuracy whose time is asked for.
    """

    spec: Spec
    policies: list[str]
    seeds: list[int]
    runs: dict[str, list[list[RoundRecord]]]
    complete: bool
    target: float

    def summaries(self) -> dict[str, stats.Summary]:
        """A summary for each policy."""
        return {policy: stats.summarise(runs, self.target, self.spec.budget_s) for policy, runs in self.runs.items()}

    def differences(self) -> dict[str, tuple[stats.Mean, stats.Mean]]:
        """The first policy's best and last accuracy less each other policy's, paired by seed."""
        first, *others = self.policies
        return {
            other: (
                stats.paired_difference(*([stats.best_accuracy(run) for run in self.runs[p]] for p in (first, other))),
                stats.paired_difference(*([stats.last_accuracy(run) for run in self.runs[p]] for p in (first, other))),
            )
            for other in others
        }


def race_spec(spec: Spec) -> Spec:
    """Return the spec as a race: a grid of policies and seeds and of nothing else."""
    odd = [field for field in spec.grid if field not in ("policy", "seed")]
    if odd:
        raise InputError(f"a race's grid is of policy and seed; {odd[0]!r} needs fedcell sweep, or a race of its own")
    policies = [format_policy(parse_policy(text)) for text in spec.grid.get("policy", [spec.policy])]
    twice = [policy for policy in policies if policies.count(policy) > 1]
    if twice:
        raise InputError(f"the race has the policy {twice[0]!r} twice; give it once")
    return spec.model_copy(update={"grid": {"policy": policies, "seed": spec.grid.get("seed", [spec.seed])}})


def run_race(
    spec: Spec,
    *,
    target: float = TARGET_ACCURACY,
    workers: int | None = None,
    watch: Watch | None = None,
    stop: Event | None = None,
) -> RaceResult:
    """Run every policy with every seed.

    Args:
        spec: with a grid of policies and seeds.
        target: the accuracy whose time is asked for.
        workers: runs at once, each on one core; all cores by default. The result does not depend on it.
        watch: called in the worker's thread after every round.
        stop: set it to end the race after the rounds now being trained.

    Returns:
        RaceResult: of all runs; after ``stop`` or Ctrl-C, of the seeds that every policy had finished.
    """
    spec, halt = race_spec(spec), stop or Event()
    at_once = workers or len(os.sched_getaffinity(0))
    runs = sorted(spec.runs(), key=lambda run: run.seed)  # seed by seed, so that an early end leaves whole seeds
    threads = max(1, at_once // len(runs))
    done: dict[tuple[str, int], list[RoundRecord]] = {}
    with ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(_run, run, threads, watch, halt): run for run in runs}
        try:
            _collect(futures, done)
        except BaseException as error:
            halt.set()
            for future in futures:
                future.cancel()
            if not isinstance(error, KeyboardInterrupt):
                raise
    return _result(spec, done, len(runs), target)


def _run(spec: Spec, threads: int, watch: Watch | None, halt: Event) -> list[RoundRecord] | None:
    records: list[RoundRecord] = []
    if halt.is_set():
        return None
    for record in simulate(spec, threads=threads):
        records.append(record)
        if halt.is_set():
            return None
        if watch:
            watch(spec, record)
    if watch:
        watch(spec, None)
    return records


def _collect(
    futures: dict[Future[list[RoundRecord] | None], Spec], done: dict[tuple[str, int], list[RoundRecord]]
) -> None:
    waiting = set(futures)
    while waiting:
        finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in finished:
            records = future.result()
            if records is not None:
                done[futures[future].policy, futures[future].seed] = records


def _result(spec: Spec, done: dict[tuple[str, int], list[RoundRecord]], wanted: int, target: float) -> RaceResult:
    names, seeds = spec.grid["policy"], spec.grid["seed"]
    whole = [seed for seed in seeds if all((name, seed) in done for name in names)]
    runs = {name: [done[name, seed] for seed in whole] for name in names}
    return RaceResult(spec, names, whole, runs, len(done) == wanted, target)


def curves(result: RaceResult) -> list[Curve]:
    """The mean curves, as plots.race_figure draws them."""
    found = {policy: summary.curve for policy, summary in result.summaries().items()}
    return [Curve(policy, curve.clock_s, curve.accuracy, curve.half) for policy, curve in found.items()]


def title(result: RaceResult) -> str:
    """What the race was of, for its picture."""
    spec, seeds = result.spec, len(result.seeds)
    return (
        f"{spec.task.data}, {spec.task.partition}, {spec.devices.count} devices, radius {spec.cell.radius_m:g} m, "
        f"{seeds} seed{'s' * (seeds != 1)}" + (", 95 % bands" if seeds > 1 else "")
    )


def summary_tables(result: RaceResult) -> list["Table"]:
    """The race's tables: accuracy in the budget and time to the target; devices and seconds a round."""
    seeds, budget = len(result.seeds), result.spec.budget_s
    limit = f"in {budget:g} s" if math.isfinite(budget) else f"in {result.spec.rounds} rounds"
    of = f"{seeds} seed{'s' * (seeds != 1)}" + (", ± 95 % interval" if seeds > 1 else "")
    target = f"to {100 * result.target:g} %\n(median)"
    accuracy = _table(
        f"Accuracy {limit}, %, {of}", "best", "last", "mean\ncurve's\nbest", "mean\ncurve's\nlast", target
    )
    rounds = _table(f"Rounds, {of}", "devices a round", "seconds a round", "rounds")
    for policy, s in result.summaries().items():
        curve = [f"{100 * value:.2f}" for value in (s.curve.best(), s.curve.last())]
        accuracy.add_row(policy, s.best.text(100), s.last.text(100), *curve, s.to_target.text())
        rounds.add_row(policy, s.devices.text(), s.round_s.text(), s.rounds.text(digits=1))
    return [accuracy, rounds]


def _table(title: str, *headings: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("policy", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def verdicts(result: RaceResult) -> list[str]:
    """What the paired differences to the first policy show, a sentence each."""
    first = result.policies[0]
    return [stats.verdict(best, first, other) for other, (best, _) in result.differences().items()]


def to_json(result: RaceResult) -> str:
    """The whole race for machines: the spec, the summaries, the differences and every round."""
    summaries = result.summaries()
    document = {
        "fedcell": __version__,
        "spec": result.spec.model_dump(exclude_none=True),
        "complete": result.complete,
        "seeds": result.seeds,
        "policies": {policy: _summary_document(summaries[policy], result.target) for policy in result.policies},
        "differences": {
            other: {"best_accuracy": _mean_document(best), "last_accuracy": _mean_document(last)}
            for other, (best, last) in result.differences().items()
        },
        "runs": list(_rows(result)),
    }
    return json.dumps(without_nan(document), allow_nan=False)


def to_csv(result: RaceResult) -> str:
    """Every round of every run, a line each."""
    text = io.StringIO()
    rows = _rows(result)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", "seed", "round", "clock_s", "round_s", "devices", "delivered", "accuracy", "loss"])
    for row in rows:
        writer.writerow(
            [
                row["policy"],
                row["seed"],
                row["round"],
                row["clock_s"],
                row["round_s"],
                len(row["devices"]),
                len(row["delivered"]),
                row["accuracy"],
                row["loss"],
            ]
        )
    return text.getvalue()


def _rows(result: RaceResult) -> list[dict[str, Any]]:
    return [
        {
            "policy": policy,
            "seed": seed,
            "round": record.round,
            "clock_s": record.clock_s,
            "round_s": record.round_s,
            "devices": record.plan.devices.tolist(),
            "shares": record.plan.shares.tolist(),
            "delivered": record.delivered.tolist(),
            "accuracy": record.accuracy,
            "loss": record.loss,
        }
        for policy in result.policies
        for seed, run in zip(result.seeds, result.runs[policy], strict=True)
        for record in run
    ]


def _summary_document(summary: stats.Summary, target: float) -> dict[str, Any]:
    curve = summary.curve
    means = {name: _mean_document(getattr(summary, name)) for name in ("best", "last", "devices", "round_s", "rounds")}
    return means | {
        "mean_curve": {"best": curve.best(), "last": curve.last(), "time_to_target_s": curve.time_to(target)},
        "target": target,
        "time_to_target_s": {"median": summary.to_target.median_s, "reached": summary.to_target.reached},
    }


def _mean_document(mean: stats.Mean) -> dict[str, Any]:
    return {"mean": mean.mean, "half_width_95": mean.half, "seeds": mean.n}
