"""The record of a round, and the metrics of all rounds as Flower's Result has them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedcell.flower.round import PlannedRound
from fedcell.protocol.outcome import Outcome
from fedcell.schedule.plan import Plan, Timing
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
        plan = Plan(np.array(self.devices, dtype=np.int64), np.array(self.shares), self.planned_s)
        delivered = np.array(self.delivered, dtype=np.int64)
        accuracy, loss = self.metric("accuracy"), self.metric("loss")
        return RoundRecord(self.round, self.clock_s, self.round_s, plan, delivered, accuracy, loss)


def recorded(
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
    plan, asked, there = planned.plan, planned.asked, np.asarray(planned.view.ids)
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
        asked=[] if asked is None else there[asked.question.devices].tolist(),
        answered=[] if asked is None else there[asked.answered].tolist(),
        waited_s=0.0 if asked is None else asked.waited_s,
    )


def _or_none(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def why_untrained(rounds: Sequence[ScheduledRound], policy: str, budget_s: float) -> str:
    """Say why rounds in which no model was ever used brought nothing, and what to do."""
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


def note(result: Result, number: int, metrics: Mapping[str, MetricRecord | None]) -> None:
    """Put a round's metrics, by ``train``, ``evaluate`` and ``server``, where Flower's Result has them."""
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
