"""The record of a round (ScheduledRound), its metrics in Flower's Result, and its lines in Flower's log."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedcell.flower.compat import LOG
from fedcell.flower.round import Connected, PlannedRound
from fedcell.protocol import Outcome
from fedcell.schedule.plan import Plan, Question, Timing
from fedcell.sim.record import RoundRecord
from fedcell.types import Floats


@dataclass(frozen=True)
class ScheduledRound:
    """One round of a federation. Lists have one entry per scheduled device, in the plan's order.

    Attributes:
        round: the number of the round, from 1.
        clock_s: when it ended, in seconds from the start of the run.
        round_s: how long it took, in seconds; until the deadline if a device was missing.
        planned_s: how long it was planned to take, in seconds.
        devices: numbers of the scheduled devices in the run.
        names: their names.
        shares: their shares of the band.
        planned_finish_s: when each was expected to have delivered, in seconds from the start of the round.
        began_s: when each started to upload; None if unknown.
        finish_s: when each had delivered; None if it did not.
        delivered: numbers of the devices whose models are used.
        late: numbers of the devices whose models came too late to be used, or not before enough others had.
        metrics: by ``train``, ``evaluate`` and ``server``, the metrics of the strategy and the evaluation function.
        asked: numbers of the devices that the policy asked something before it decided.
        answered: numbers of those that answered.
        waited_s: when the wait for their answers was over, in seconds from the start of the round.
        epochs: how often each was told to go through its samples; None if the policy does not decide that.
        bits: how many bits a weight each was told to upload; likewise.

    Example:
        >>> from fedcell.flower import ScheduledRound
        >>> done = ScheduledRound(
        ...     round=1, clock_s=7.5, round_s=7.5, planned_s=6.0, devices=[0, 3], names=["a", "d"], shares=[0.25, 0.75],
        ...     planned_finish_s=[6.0, 6.0], began_s=[2.0, None], finish_s=[6.1, None], delivered=[0], late=[],
        ...     metrics={"server": {"accuracy": 0.81}},
        ... )
        >>> done.missing, done.metric("accuracy")
        ([3], 0.81)
    """

    round: int
    clock_s: float
    round_s: float
    planned_s: float
    devices: list[int]
    names: list[str]
    shares: list[float]
    planned_finish_s: list[float]
    began_s: list[float | None]
    finish_s: list[float | None]
    delivered: list[int]
    late: list[int]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    waited_s: float = 0.0
    epochs: list[float] | None = None
    bits: list[float] | None = None

    @property
    def missing(self) -> list[int]:
        """Numbers of the scheduled devices whose models are not used, the late ones included."""
        return [device for device in self.devices if device not in self.delivered]

    @property
    def empty(self) -> bool:
        """Whether devices were scheduled, or asked, and none brought a model, or answered.

        Such a round does not count as one of training.
        """
        return (bool(self.devices) and not self.delivered) or (bool(self.asked) and not self.answered)

    def metric(self, name: str) -> float:
        """Return a metric of the server's evaluation, otherwise of the clients'; NaN if there is none."""
        for source in ("server", "evaluate"):
            value = self.metrics.get(source, {}).get(name)
            if isinstance(value, int | float):
                return float(value)
        return math.nan

    def record(self) -> RoundRecord:
        """Return the round as a record of the simulator."""
        decided = (None if column is None else np.array(column) for column in (self.epochs, self.bits))
        plan = Plan(np.array(self.devices, dtype=np.int64), np.array(self.shares), self.planned_s, None, *decided)
        delivered = np.array(self.delivered, dtype=np.int64)
        accuracy, loss = self.metric("accuracy"), self.metric("loss")
        return RoundRecord(self.round, self.clock_s, self.round_s, plan, delivered, accuracy, loss)


def make_record(
    number: int, clock_s: float, round_s: float, planned: PlannedRound, timing: Timing, outcome: Outcome, *, used: bool
) -> ScheduledRound:
    """Return the record of a round, as yet without metrics.

    Args:
        number: of the round, from 1.
        clock_s: when it ended.
        round_s: how long it took.
        planned: the round as it was planned.
        timing: when the devices started to upload and finished.
        outcome: how it went.
        used: whether the models that arrived were used.
    """
    plan, answers, there = planned.plan, planned.answers, np.asarray(planned.view.ids)
    ids = there[plan.devices]
    return ScheduledRound(
        round=number,
        clock_s=clock_s,
        round_s=round_s,
        planned_s=plan.round_s,
        devices=ids.tolist(),
        names=[device.name for device in planned.devices],
        shares=plan.shares.tolist(),
        planned_finish_s=planned.grant.finish_s.tolist(),
        began_s=_or_none(timing.began_s),
        finish_s=_or_none(timing.finish_s),
        delivered=ids[outcome.delivered].tolist() if used else [],
        late=ids[outcome.late].tolist(),
        asked=[] if answers is None else there[answers.question.devices].tolist(),
        answered=[] if answers is None else there[answers.places].tolist(),
        waited_s=0.0 if answers is None else answers.waited_s,
        epochs=None if plan.epochs is None else plan.epochs.tolist(),
        bits=None if plan.bits is None else plan.bits.tolist(),
    )


def _or_none(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def explain_no_update(rounds: Sequence[ScheduledRound], policy: str, budget_s: float) -> str:
    """Return why no round had a model that could be used, and what to do, in one sentence."""
    if not rounds:
        return f"no round can end within the budget of {budget_s:g} s; raise it, or schedule fewer devices"
    if any(done.asked for done in rounds) and not any(done.answered for done in rounds):
        return f"no node answered in {len(rounds)} rounds what the policy asked; the log says why"
    if not any(done.devices for done in rounds):
        return f"{policy} scheduled no device in {len(rounds)} rounds; try another policy"
    return (
        f"no node brought a model that could be used in {len(rounds)} rounds; the log says why for each of those that "
        "were asked"
    )


def store_metrics(result: Result, number: int, metrics: Mapping[str, MetricRecord | None]) -> None:
    """Store a round's metrics, by ``train``, ``evaluate`` and ``server``, in Flower's Result."""
    for source, values in metrics.items():
        if values is not None:
            _by_source(result)[source][number] = values


def metrics_of(result: Result, number: int) -> dict[str, dict[str, Any]]:
    """Return a round's metrics by source, as a ScheduledRound has them."""
    return {source: dict(found[number]) for source, found in _by_source(result).items() if number in found}


def _by_source(result: Result) -> dict[str, dict[int, MetricRecord]]:
    return {
        "train": result.train_metrics_clientapp,
        "evaluate": result.evaluate_metrics_clientapp,
        "server": result.evaluate_metrics_serverapp,
    }


_MAX_NAMES = 20
_WANTED = {"loss": "their losses", "norm": "the lengths of their updates"}


def log_plan(planned: PlannedRound) -> None:
    """Log who is scheduled, out of how many, and how long the round is planned to take."""
    names = [device.name for device in planned.devices]
    known = planned.known[planned.plan.devices].all()
    LOG.info(
        "fedcell: scheduled %d of %d devices, %s%s: %s",
        *(len(names), len(planned.nodes)),
        f"planned {planned.plan.round_s:.4g} s" if known else "some of them of unknown times",
        _effort_text(planned.plan),
        listed(names),
    )


def _effort_text(plan: Plan) -> str:
    """How long devices are to train, and with how many bits a weight to send, where the policy decides that."""
    texts = ""
    for values, unit in ((plan.epochs, "epochs"), (plan.bits, "bits a weight")):
        if values is not None and values.size:
            ends = dict.fromkeys(f"{end:.3g}" for end in (values.min(), values.max()))
            texts += f", {' to '.join(ends)} {unit}"
    return texts


def log_answers(
    question: Question, there: Connected, answered: int, waited_s: float, why: dict[str, list[str]]
) -> None:
    """Log how many have answered within how long, and why others have not."""
    LOG.info(
        "fedcell: asked %d of %d devices for %s; %d answered within %.4g s",
        *(question.devices.size, len(there.nodes), _WANTED[question.about], answered, waited_s),
    )
    for fault, names in why.items():
        LOG.warning("fedcell: no answer of %s: %s", listed(names), fault)


def log_round(done: ScheduledRound) -> None:
    """Log the planned and the actual times of the round and its devices, and who is missing."""
    missing = [name for device, name in zip(done.devices, done.names, strict=True) if device in set(done.missing)]
    LOG.info(
        "\t├──> took %.4g s, planned %.4g s; clock %.6g s%s",
        *(done.round_s, done.planned_s, done.clock_s),
        f"; missing: {listed(missing)}" if missing else "",
    )
    took = ("-" if s is None else f"{s:.4g}" for s in done.finish_s)
    times = [f"{n} {p:.4g}/{t}" for n, p, t in zip(done.names, done.planned_finish_s, took, strict=True)]
    LOG.info("\t├──> planned/took in s: %s", listed(times) if times else "no device was scheduled")


def log_metrics(metrics: MetricRecord | None, *, clients: bool = True) -> None:
    """Log the metrics of a round's training or evaluation in Flower's own form."""
    if metrics is not None:
        LOG.info("\t└──> %s: %s", "Aggregated MetricRecord" if clients else "MetricRecord", metrics)


def log_result(result: Result, rounds: Sequence[ScheduledRound], seconds: float) -> None:
    """Log the end of a run: the times of its rounds, and Flower's final results."""
    trained = [done for done in rounds if done.delivered]
    LOG.info("")
    LOG.info("Strategy execution finished in %.2fs", seconds)
    if trained:
        LOG.info(
            "fedcell: rounds trained: %d; clock %.6g s; a round took %.4g s on average (planned %.4g s), %.1f models",
            *(len(trained), rounds[-1].clock_s),
            *(sum(values) / len(trained) for values in zip(*((d.round_s, d.planned_s) for d in trained), strict=True)),
            sum(len(d.delivered) for d in trained) / len(trained),
        )
    LOG.info("")
    LOG.info("Final results:")
    LOG.info("")
    for line in io.StringIO(str(result)):
        LOG.info("\t%s", line.strip("\n"))
    LOG.info("")


def listed(words: Sequence[str]) -> str:
    """Return the words as a list in a sentence: the first twenty, and how many more there are."""
    more = len(words) - _MAX_NAMES
    return ", ".join(words[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
