"""What devices report: who gets it, and what a policy is told that reads what it did not ask for."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.engine import HostUpdates
from fedcell.protocol import SIGNALS, Knowledge, read_signals, uses_signal
from fedcell.protocol.columns import Table, column
from fedcell.schedule.plan import Links
from fedcell.sim.loop import Simulation

SMALL: dict[str, Any] = {"devices": {"count": 4}, "task": {"hidden": [4], "sizes": [30] * 4}}


@dataclass(frozen=True)
class Reads(fc.Policy):
    """Reads a column that it has not said it uses."""

    column: str = "norms"

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        values = getattr(view, self.column)
        return np.argsort(-np.nan_to_num(np.asarray(values), nan=9.0).reshape(len(view), -1)[:, 0])[:2]


@dataclass(frozen=True)
class Uses(Reads):
    uses_norms: ClassVar[bool] = True
    uses_updates: ClassVar[bool] = True
    uses_rms: ClassVar[bool] = True
    uses_sums: ClassVar[bool] = True
    uses_profiles: ClassVar[bool] = True


COLUMNS = {
    "norms": "uses_norms",
    "squares": "uses_sums",
    "updates": "uses_updates",
    "rms_losses": "uses_rms",
    "profiles": "uses_profiles",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_what_a_policy_has_not_said_it_uses_is_an_error_that_names_the_line(column: str) -> None:
    spec = fc.Spec(**SMALL, rounds=2, policy=f"{__name__}:Reads:column={column}")
    says = rf"Reads reads view\.{column}, .* add this line to the class: {COLUMNS[column]}: ClassVar\[bool\] = True"
    with pytest.raises(fc.InputError, match=says):
        list(fc.simulate(spec, threads=1))


@pytest.mark.parametrize("column", ["norms", "rms_losses", "peaks", "profiles", "losses"])
def test_what_it_has_said_it_uses_is_there(column: str) -> None:
    spec = fc.Spec(**SMALL, rounds=3, policy=f"{__name__}:Uses:column={column}")
    run = Simulation.load(spec, threads=1)
    state = run.start()
    for _ in range(2):
        played = run.step(state)
        assert played is not None
        record, state = played
    conditions = run.conditions(state)
    assert conditions is not None
    told = np.asarray(getattr(run.round_inputs(state, conditions).view, column))
    assert np.isfinite(told[record.delivered]).all()


def test_what_an_undeclared_column_can_do_is_to_say_so() -> None:
    view = Knowledge.empty(3).view(Links(np.ones(3), np.ones(3)), 0, policy=fc.All())
    some = replace(view, clock_s=3.0).only(np.array([0, 2]))  # a view of others can still be made
    norms: Any = some.norms
    for use in (np.isnan, np.asarray, np.argsort, lambda x: x[0], lambda x: -x, lambda x: 2 * x, len, list, np.max,
                lambda x: x.max(), lambda x: x > 1, lambda x: x == 1, lambda x: x != 1, bool):  # fmt: skip
        with pytest.raises(fc.InputError, match=r"All reads view\.norms, .*: uses_norms: ClassVar\[bool\] = True"):
            use(norms)
    assert Knowledge.empty(3).view(Links(np.ones(3), np.ones(3)), 0).norms is not None  # where no policy is named


def test_signals_are_read_from_updates_as_far_as_they_are_used() -> None:
    updates = HostUpdates([np.zeros(2, np.float32)] * 2, np.array([[3, 4], [0, 1]], np.float32), np.array([0.5, 0.7]))
    assert set(read_signals(fc.All(), updates)) == {"losses"}
    found = read_signals(Uses(), updates)
    assert list(found) == [one.name for one in SIGNALS]
    assert found["norms"].tolist() == [5.0, 1.0]
    assert [found[name].tolist() for name in ("peaks", "absolutes", "squares")] == [
        [32.0, 2.0],
        [28.0, 1.0],
        [25.0, 1.0],
    ]
    assert [uses_signal(Uses(), one) for one in SIGNALS] == [True] * 7


def test_a_table_begins_empty_grows_and_is_saved_under_its_names() -> None:
    known = Knowledge.empty(2).with_reports(np.array([1]), 4, {"losses": np.array([0.5]), "updates": np.ones((1, 3))})
    known = known.with_reports(np.array([0, 1]), 5, {"norms": np.array([np.nan, np.nan])})  # nobody said anything
    again = Knowledge.from_arrays(known.grow(3).to_arrays())
    arrays = again.to_arrays()
    np.testing.assert_array_equal(arrays["heard_losses"], [np.nan, 0.5, np.nan])
    assert arrays["heard_heard_round"].tolist() == [-1, 4, -1]
    assert arrays["heard_updates"].shape == (3, 3)
    assert arrays["last_round"].tolist() == [-1, -1, -1]
    names = {"compute_s", "compute_seen", "compute_last_s", "compute_doubts", "upload_s", "looks", "round_losses"}
    assert names < set(arrays)  # those of version 0.2


@dataclass(frozen=True, eq=False)
class Both(Table):
    """A column of version 0.2, and a later one."""

    old: Any = column(0.0)
    new: Any = column(-1, np.int64, later=True)


def test_a_state_that_lacks_a_later_column_knows_nothing_of_it_and_one_that_lacks_another_is_damaged() -> None:
    assert Both.from_arrays({"old": np.ones(3)}).new.tolist() == [-1, -1, -1]
    assert Both.from_arrays({"old": np.ones(2), "new": np.array([4, 5])}).new.tolist() == [4, 5]
    with pytest.raises(KeyError, match="old"):
        Both.from_arrays({"new": np.array([4, 5])})
