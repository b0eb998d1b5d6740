from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import builders
import fedcell as fc
from fedcell.schedule.registry import POLICIES
from fedcell.sim import loop
from fedcell.sim.spec import Spec
from fedcell.sim.state import State
from fedcell.world import AvailabilitySnapshot
from fedcell.world.availability import Availability

spec_of = partial(builders.spec_of, rounds=4)


@dataclass(frozen=True)
class Shifts:
    """The devices that a list names in the hour of the clock, until its end; later nobody comes."""

    hours: tuple[tuple[int, ...], ...]
    hour_s: float = 3600.0

    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot:
        hour = int(clock_s // self.hour_s)
        there = np.isin(np.arange(count), self.hours[hour] if hour < len(self.hours) else ())
        return AvailabilitySnapshot(there, np.full(count, (hour + 1) * self.hour_s))

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
        state = State.from_bytes(state.to_bytes())
        records.append(record)
    return records


LINES = ["random:k=8", "round_robin:k=8", "proportional_fair:k=8", "deadline:seconds=20", "all", "greedy", "optimal"]
OTHERS = sorted(set(POLICIES) - {line.partition(":")[0] for line in LINES})  # which run with their defaults


@pytest.mark.parametrize("policy", [*LINES, *OTHERS])
def test_every_policy_schedules_only_those_who_are_there(policy: str) -> None:
    hours = ((1, 5, 17), (), (3,), tuple(range(20)))
    policy = policy.replace("auto", "auto:epochs=1,bits=32")  # otherwise its rounds are so short that no hour is over
    averaging = "balanced" if policy == "diverse" else "samples"
    spec = spec_of(policy=policy, rounds=12, budget_s=4 * 3600.0, task={"averaging": averaging})
    records = played(run_of(spec, Shifts(hours, hour_s=30.0)))
    assert len(records) >= 4
    reports = policy.startswith(("auto", "diverse"))
    clock_s, met = records[0].clock_s - records[0].round_s if reports else 0.0, set()
    for record in records:
        there = set(hours[int(clock_s // 30.0)])
        assert set(record.plan.devices.tolist()) <= there
        assert set(record.delivered.tolist()) <= set(record.plan.devices.tolist())
        if not there:
            assert record.clock_s == 60.0
        met |= set(record.plan.devices.tolist())
        clock_s = record.clock_s
    assert met - {1, 5, 17, 3}  # in the last hour others were scheduled


def test_nobody_there_means_waiting_and_nobody_ever_the_end() -> None:
    spec = spec_of(policy="random:k=3", rounds=None, budget_s=10_000.0)
    records = played(run_of(spec, Shifts(((), (), (4, 7), ()), hour_s=100.0)))
    assert [record.plan.devices.tolist() for record in records[:2]] == [[], [4, 7]]
    first = records[0]
    assert (first.clock_s, first.round_s, first.plan.round_s, first.delivered.size) == (200.0, 200.0, 200.0, 0)
    assert records[-1].clock_s <= 300.0  # then nobody comes any more
    assert played(run_of(spec, Shifts((), hour_s=100.0))) == []
    late = spec_of(policy="random:k=3", rounds=None, budget_s=150.0)
    assert played(run_of(late, Shifts(((), (), (4, 7)), hour_s=100.0))) == []


def test_a_device_that_leaves_brings_nothing_and_is_not_waited_for() -> None:
    spec = spec_of(policy="all", rounds=1)
    whole = next(iter(fc.simulate(spec)))

    @dataclass(frozen=True)
    class Leaves(fc.Always):
        def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot:
            until_s = np.full(count, np.inf)
            until_s[[2, 9]] = 1.5, 0.5
            return AvailabilitySnapshot(np.ones(count, np.bool_), until_s)

    (record,) = played(run_of(spec, Leaves()))
    assert record.plan.devices.tolist() == whole.plan.devices.tolist()
    assert record.plan.shares.tolist() == whole.plan.shares.tolist()  # the server could not know
    assert set(whole.delivered.tolist()) - set(record.delivered.tolist()) == {2, 9}
    assert record.round_s == whole.round_s  # all others take as long as they would have


def test_who_left_teaches_nothing() -> None:
    run = run_of(spec_of(policy="all", rounds=1, knowledge="observed"), Shifts((tuple(range(20)),), hour_s=6.2))
    played_one = run.step(run.start())
    assert played_one is not None
    record, state = played_one
    late = np.setdiff1d(np.arange(20), record.delivered)
    assert record.round_s == 6.2
    assert late.size == 20
    assert (state.knowledge.compute.weight == 0).all()
    assert (state.knowledge.last_round == 0).all()


def test_reports_come_from_those_who_are_there() -> None:
    spec = spec_of(policy="diverse", rounds=1)
    full = loop.Simulation.load(spec).start()
    few = run_of(spec, Shifts(((0, 1),))).start()
    none = run_of(spec, Shifts(((), (0, 1)))).start()
    assert none.clock_s == 0.0 < few.clock_s < full.clock_s
    for state in (few, none):
        np.testing.assert_array_equal(state.knowledge.profiles, full.knowledge.profiles)


def test_day_and_night_can_be_resumed_at_any_round_and_meets_all_policies_alike() -> None:
    devices = {"availability": "daynight:there=0.4,day_s=120"}
    spec = spec_of(policy="random:k=5", rounds=None, budget_s=200.0, devices=devices)
    whole = list(fc.simulate(spec))
    again = played(loop.Simulation.load(spec))
    assert [(r.clock_s, r.plan.devices.tolist(), r.loss) for r in whole] == [
        (r.clock_s, r.plan.devices.tolist(), r.loss) for r in again
    ]
    world, clock_s = loop.Simulation.load(spec).world, 0.0
    for r, record in enumerate(whole):
        assert set(record.plan.devices.tolist()) <= set(world.conditions(0, r, clock_s).there.tolist())
        clock_s = record.clock_s


def test_the_key_knows_who_is_there_by_what_is_in_the_trace(tmp_path: Path) -> None:
    def key(availability: str) -> str:
        return spec_of(devices={"availability": availability}).key()

    one, two, three = (tmp_path / name for name in ("one.csv", "two.csv", "three.csv"))
    one.write_text("device,from_s,until_s\n0,0,5\n")
    two.write_text("device,from_s,until_s\n0,0,5\n")
    three.write_text("device,from_s,until_s\n0,0,6\n")
    assert key("always") == spec_of().key() == key("Always")
    assert key(f"trace:{one}") == key(f"trace:file={two}") != key(f"trace:{three}")
    assert key(f"trace:{one}") != key(f"trace:{one},repeat=false")
    assert key("daynight") == key("daynight:there=0.5") != key("daynight:there=0.4")
