"""What is shown of a race: a picture of its curves, JSON and CSV of its rounds, and the command that runs it again."""

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedcell import __version__
from fedcell.defaults import TARGET_ACCURACY
from fedcell.files import to_json as json_text
from fedcell.plots import Curve, Finish, race_figure
from fedcell.runs import stats
from fedcell.runs.comparisons import UNITS, Axis, Headline
from fedcell.runs.race import RaceResult, default_race, race_policies
from fedcell.runs.store import spec_document
from fedcell.runs.stored import flat
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec
from fedcell.sim.spec_fields import all_fields
from fedcell.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OPTIONS = {field.path: field.about.option for field in all_fields() if field.about.option}
"""The fields of a spec that `fedcell race` has an option for; all others need a file."""


def draw_race(result: RaceResult, by: Axis = "time", looks: Mapping[str, tuple[str, str]] | None = None) -> "Figure":
    """The picture, as RaceResult.figure gives it; ``looks``: colour and dash by policy, plots.STYLES by default."""
    end = result.spec.budget_s if by == "time" else result.spec.budget_j
    return race_figure(
        curves(result, by), title(result), math.inf if end is None else end, looks, by, finish(result, by)
    )


def curves(result: RaceResult, by: Axis = "time") -> list[Curve]:
    """The mean curves against time or energy, as plots.race_figure draws them; with few seeds they have no bands."""
    if by == "energy":
        found = {policy: stats.energy_curve(list(filter(len, runs))) for policy, runs in result.rounds.items()}
    else:
        found = {policy: summary.curve for policy, summary in result.summaries().items()}
    return [Curve(policy, curve.x, curve.accuracy, curve.half) for policy, curve in found.items()]


def title(result: RaceResult) -> str:
    """What the race was of, for its picture."""
    spec, seeds = result.spec, len(result.seeds)
    cell = spec.cell.document()
    odd = [name for name in (cell["channel"], cell["rate"]) if name not in ("paper", "shannon")]
    return (
        f"{spec.task.data}, {spec.task.partition}, {spec.devices.count} devices, radius {spec.cell.radius_m:g} m, "
        f"{''.join(f'{name}, ' for name in odd)}"
        f"{seeds} seed{'s' * (seeds != 1)}" + (", 95 % bands" if seeds >= stats.FEWEST_IN_A_BAND else "")
    )


def finish(result: RaceResult, by: Axis = "time") -> Finish:
    """The target, and when each policy reaches it: one number for each, the restricted mean, wherever it is shown."""
    unit, limit = UNITS[by], result.limit(by)
    reached, places = dict[str, str](), dict[str, float]()
    for policy, summary in result.summaries().items():
        to = summary.to_target if by == "time" else summary.energy_to_target
        mean = to.mean_s if isinstance(to, stats.TimeTo) else to.mean_j
        median = to.median_s if isinstance(to, stats.TimeTo) else to.median_j
        if not summary.best.n:
            reached[policy] = "no round"
        elif not to.reached:
            reached[policy] = "never"
        elif math.isfinite(mean):
            reached[policy] = f"{mean:.0f} {unit}" if by == "time" else f"{mean:.4g} {unit}"
            reached[policy] += f" ({to.reached}/{to.n})" if to.reached < to.n else ""
            if math.isfinite(median):
                places[policy] = mean
        else:
            reached[policy] = "unknown"
    some_never = any(math.isfinite(limit) and "/" in text for text in reached.values())
    words = f"mean {'time' if by == 'time' else 'energy'} to {100 * result.target:g} %"
    words += f"\n(never counts as {limit:.4g} {unit}):" if some_never else ":"
    found = result.headline() if by == "time" else None
    if found is None or found.found is None or not found.sure:
        return Finish(result.target, reached, places, words)
    one = found.found
    return Finish(result.target, reached, places, words, one.policy, one.other, f"{one.ratio.value:.1f} x sooner")


def to_json(result: RaceResult, *, per_class: bool = False) -> str:
    """The whole race for machines: spec, summaries, differences, all rounds; ``per_class``: final accuracies too."""
    summaries = result.summaries()
    document = {
        "fedcell": __version__,
        "spec": result.spec.model_dump(exclude_none=True),
        "complete": result.complete,
        "seeds": result.seeds,
        "failures": [
            {"policy": policy, "seed": seed, "reason": reason} for (policy, seed), reason in result.failures.items()
        ],
        "policies": {policy: _summary_document(summaries[policy], result, policy) for policy in result.policies},
        "headline": _headline_document(result.headline()),
        "comparisons": _comparisons_document(result),
        "differences": _differences_document(result),
        "rounds": [
            {"policy": policy, "seed": seed} | record.to_dict(plan=True) for policy, seed, record in _all_rounds(result)
        ],
    }
    if per_class:
        document["class_accuracy"] = {policy: found.tolist() for policy, found in result.class_accuracy().items()}
    return json_text(document)


def to_csv(result: RaceResult, *, per_class: bool = False) -> str:
    """Every round of every run, a line each; ``per_class`` adds a run's final accuracies by class to its last line."""
    classes = result.class_accuracy() if per_class else {}
    count = max((found.shape[1] for found in classes.values()), default=0)
    headings = ["policy", "seed", *ROUND_COLUMNS, *(f"accuracy_class_{label}" for label in range(count))]
    last = {(policy, seed): run[-1] for policy, seed, run in _all_runs(result) if run}
    rows = []
    for policy, seed, record in _all_rounds(result):
        ours: list[Any] = [""] * count
        if count and record is last[policy, seed]:
            begun = [other for name, other in last if name == policy]  # the seeds that have a model, in order
            found = classes[policy][begun.index(seed)].tolist()
            ours = ["" if math.isnan(value) else value for value in found]
        rows.append([policy, seed, *record.numbers(), *ours])
    return csv_text(headings, rows)


def _all_runs(result: RaceResult) -> Iterable[tuple[str, int, list[RoundRecord]]]:
    for policy in result.policies:
        yield from ((policy, seed, run) for seed, run in zip(result.seeds, result.runs[policy], strict=True))


def _all_rounds(result: RaceResult) -> Iterable[tuple[str, int, RoundRecord]]:
    for policy, seed, run in _all_runs(result):
        yield from ((policy, seed, record) for record in run)


_MEANS = ("best", "last", "devices", "round_s", "rounds", "joules", "epochs", "bits", "sent_bytes")


def _summary_document(summary: stats.Summary, result: RaceResult, policy: str) -> dict[str, Any]:
    curve, to, cost = summary.curve, summary.to_target, summary.energy_to_target
    means = {name: _mean_document(getattr(summary, name), name in ("best", "last")) for name in _MEANS}
    return means | {
        "mean_curve": {
            "best": curve.best(),
            "last": curve.last(),
            "time_to_target_s": curve.time_to(result.target),
        },
        "target": result.target,
        "time_to_target_s": {
            "median": to.median_s,
            "restricted_mean": to.mean_s,
            "reached": to.reached,
            "seeds": to.n,
            "by_seed": result.needs()[policy],
        },
        "energy_to_target_j": {
            "median": cost.median_j,
            "restricted_mean": cost.mean_j,
            "reached": cost.reached,
            "seeds": cost.n,
            "by_seed": result.needs("energy")[policy],
        },
        "diverged": summary.diverged,
        "failed": summary.failed,
        "without_round": summary.without_round,
    }


def _differences_document(result: RaceResult) -> dict[str, Any]:
    """The paired differences of accuracy; ``significant`` is corrected for the number of policies, by measure."""
    found: dict[str, Any] = {other: {} for other in result.policies[1:]}
    pairs = result.differences().values()
    measures = {"best_accuracy": [best for best, _ in pairs], "last_accuracy": [last for _, last in pairs]}
    for measure, ours in measures.items():
        for other, mean, significant in zip(found, ours, stats.significant_among(ours), strict=True):
            found[other][measure] = _mean_document(mean) | {"p": stats.p_value(mean), "significant": significant}
    return found


def _comparisons_document(result: RaceResult) -> list[dict[str, Any]]:
    """Every pair of policies once, by time and by energy to the target."""
    measures: dict[str, Axis] = {"time_to_target_s": "time", "energy_to_target_j": "energy"}
    return [
        {"measure": measure} | {name: value for name, value in asdict(one).items() if name != "by"}
        for measure, by in measures.items()
        for (policy, other), one in result.comparisons(by).items()
        if result.policies.index(policy) < result.policies.index(other)
    ]


def _headline_document(headline: Headline | None) -> dict[str, Any] | None:
    if headline is None:
        return None
    one = headline.found
    who = {"policy": None, "other": None} if one is None else {"policy": one.policy, "other": one.other}
    return {"text": headline.text, "rests_on": headline.small, **who, "significant": headline.sure}


def _mean_document(mean: stats.Mean, accuracy: bool = False) -> dict[str, Any]:
    low, high = mean.interval(0.0, 1.0) if accuracy else mean.interval()
    half = mean.half if mean.has_interval else math.nan
    return {"mean": mean.mean, "half_width_95": half, "low_95": low, "high_95": high, "seeds": mean.n}


def race_command(spec: Spec, target: float) -> tuple[str, str | None]:
    """The `fedcell race` command of a race, and the file that it reads if options cannot say all of it.

    Args:
        spec: the race, with its grid of policies and seeds.
        target: the target accuracy, from 0 to 1.

    Returns:
        The command, quoted for a shell, and the TOML text of ``race.toml``; None if the command needs no file.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.runs.race_report import race_command
        >>> race = fc.Spec(budget_s=60.0, grid={"policy": ["greedy", "all"], "seed": [0, 1]})
        >>> race_command(race, 0.7)
        ('fedcell race --policy greedy --policy all --seeds 2 --budget-s 60 --evaluate rounds:1 --target 0.7', None)
    """
    aim = [] if target == TARGET_ACCURACY else ["--target", _text(target)]
    changes = _changes(spec)
    seeds, policies = spec.grid["seed"], spec.grid["policy"]
    if any(name not in OPTIONS for name in changes) or None in changes.values() or seeds != list(range(len(seeds))):
        return shlex.join(["fedcell", "race", "race.toml", *aim]), spec.to_toml()
    words = ["fedcell", "race"]
    if policies != race_policies(spec.devices.count, spec.cell.law):
        words += [word for policy in policies for word in ("--policy", policy)]
    if seeds != default_race().grid["seed"]:
        words += ["--seeds", str(len(seeds))]
    for field, value in changes.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{OPTIONS[field]}")
        else:
            words += [f"--{OPTIONS[field]}", _text(value)]
    return shlex.join([*words, *aim]), None


def _changes(spec: Spec) -> dict[str, Any]:
    """The fields in which the race is not the default one."""
    usual, ours = flat(spec_document(default_race())), flat(spec_document(spec))
    changes = {name: value for name, value in ours.items() if usual.get(name) != value}
    for name in ("policy", "seed"):
        changes.pop(name, None)
    if spec.rounds is not None:  # which lifts the usual limit of time
        changes.pop("budget_s", None)
        if math.isfinite(spec.budget_s):
            changes["budget_s"] = spec.budget_s
    return changes


def _text(value: Any) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
