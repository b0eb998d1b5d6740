from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.registry import POLICIES
from fedcell.sim import loop
from fedcell.sim.spec import Spec, parse_spec
from fedcell.world import Attendance, Availability


def spec_of(**fields: Any) -> Spec:
    return parse_spec({"rounds": 4, "task": {"hidden": [4]}, **fields}, "test")


@dataclass(frozen=True)
class Shifts:
    """The devices that a list names in the hour of the clock, until its end; later nobody comes."""

    hours: tuple[tuple[int, ...], ...]
    hour_s: float = 3600.0

    def at(self, count: int, seed: int, clock_s: float) -> Attendance:
        hour = int(clock_s // self.hour_s)
        there = np.isin(np.arange(count), self.hours[hour] if hour < len(self.hours) else ())
        return Attendance(there, np.full(count, (hour + 1) * self.hour_s))

    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        first = int(clock_s // self.hour_s)
        if first < len(self.hours) and self.hours[first]:
            return clock_s
        return next((h * self.hour_s for h in range(first + 1, len(self.hours)) if self.hours[h]), np.inf)


def run_of(spec: Spec, availability: Availability) -> loop.Simulation:
    run = loop.Simulation.load(spec)
    return replace(run, world=replace(run.world, availability=availability))


def played(run: loop.Simulation) -> list[fc.RoundRecord]:
    state, records = run.start(), []
    while (step := run.step(state)) is not None:
        record, state = step
        state = loop.State.from_bytes(state.to_bytes())
        records.append(record)
    return records


LINES = ["random:k=8", "round_robin:k=8", "proportional_fair:k=8", "deadline:seconds=20", "all", "greedy", "optimal"]


@pytest.mark.parametrize("policy", [*LINES, "diverse"])
def test_every_policy_schedules_only_those_who_are_there(policy: str) -> None:
    assert {line.partition(":")[0] for line in LINES} | {"diverse"} == set(POLICIES)
    hours = ((1, 5, 17), (), (3,), tuple(range(20)))
    averaging = "balanced" if policy == "diverse" else "samples"
    spec = spec_of(policy=policy, rounds=12, budget_s=4 * 3600.0, task={"hidden": [4], "averaging": averaging})
    records = played(run_of(spec, Shifts(hours, hour_s=30.0)))
    assert len(records) >= 4
    clock_s, met = 0.0 if policy != "diverse" else records[0].clock_s - records[0].round_s, set()
    for record in records:
        there = set(hours[int(clock_s // 30.0)])
        assert set(record.plan.devices.tolist()) <= there
        assert set(record.delivered.tolist()) <= set(record.plan.devices.tolist())
        if not there:
            assert record.clock_s == 60.0
        met |= set(record.plan.devices.tolist())
        clock_s = record.clock_s
    assert met - {1, 5, 17, 3}  # in the last hour others were scheduled
