"""Judging a round: the fast rule against its twin, which looks at one device after the other."""

import numpy as np
import pytest

from fedcell.protocol import Observed, Outcome
from fedcell.protocol.outcome import judge
from fedcell.schedule.plan import Timing
from twins.outcome import Device, judged

INF = np.inf


def drawn(rng: np.random.Generator, clients: bool) -> tuple[list[Device], int, float | None]:
    """A round of a few devices, some of which are late, leave, never come or bring nothing that can be used."""
    devices = []
    for _ in range(int(rng.integers(1, 7))):
        began_s = float(rng.integers(1, 8))
        finish_s = began_s + float(rng.integers(1, 8))
        late_s = float(rng.choice([INF, float(rng.integers(2, 16))]))
        leaves_s = INF if clients or rng.random() < 0.7 else float(rng.integers(1, 16))
        arrived = not clients or bool(rng.random() < 0.8)
        usable = not clients or not arrived or finish_s > late_s or bool(rng.random() < 0.8)
        devices.append(Device(began_s, finish_s, late_s, leaves_s, float(rng.integers(1, 5)), arrived, usable))
    ended_s = 20.0 if clients else None  # everything that came has come by then
    return devices, int(rng.integers(1, 7)), ended_s


@pytest.mark.parametrize("clients", [False, True])
@pytest.mark.parametrize("seed", range(200))
def test_a_round_is_judged_as_device_by_device(seed: int, clients: bool) -> None:
    devices, needed, ended_s = drawn(np.random.default_rng(seed), clients)
    column = {name: np.array([getattr(d, name) for d in devices]) for name in vars(devices[0])}
    observed = Observed(
        Timing(column["began_s"], column["finish_s"]),
        column["late_s"],
        column["leaves_s"],
        arrived=column["arrived"] if clients else None,
        unusable=~column["usable"],
        ended_s=ended_s,
    )
    outcome = judge(observed, column["upload_s"], needed=needed)
    round_s, expected = judged(devices, needed, ended_s, asks_who_came=clients)
    assert outcome.round_s == round_s
    assert outcome.delivered.tolist() == [one.delivered for one in expected]
    assert outcome.failed.tolist() == [one.failed for one in expected]
    for i, one in enumerate(expected):
        began_s, finish_s = outcome.learnt.began_s[i], outcome.learnt.finish_s[i]
        if one.learnt is None:
            assert np.isnan(began_s)
            assert np.isnan(finish_s)
            continue
        assert (began_s, finish_s) == one.learnt[:2]
        assert outcome.learnt.censored is not None
        assert bool(outcome.learnt.censored[i]) is one.learnt[2]
    late = [not one.delivered and not one.failed and one.learnt is not None for one in expected]
    assert outcome.late.tolist() == late


def test_the_cases_of_the_twin_are_all_there() -> None:
    """Some of the rounds above end early, and some devices of each kind are in them."""
    kinds = set()
    for seed in range(200):
        for clients in (False, True):
            devices, needed, ended_s = drawn(np.random.default_rng(seed), clients)
            _, found = judged(devices, needed, ended_s, asks_who_came=clients)
            kinds |= {(one.delivered, one.failed, one.learnt is None or one.learnt[2]) for one in found}
    assert kinds == {(True, False, False), (False, False, False), (False, False, True), (False, True, True)}


def test_nobody() -> None:
    nobody = Outcome.empty(3.0)
    assert (nobody.round_s, nobody.delivered.size, nobody.learnt.finish_s.size) == (3.0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_in_which_nothing_is_amiss_needs_no_judgement(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    began_s = rng.random(n)
    observed = Observed(Timing(began_s, began_s + rng.random(n)), np.full(n, INF))
    assert observed.nothing_is_amiss
    needed = [None, n, n + 3][seed % 3]
    quick = judge(observed, np.ones(n), needed=needed, late_count=bool(seed % 2))
    monkeypatch.setattr(Observed, "nothing_is_amiss", False)
    slow = judge(observed, np.ones(n), needed=needed, late_count=bool(seed % 2))
    for name in ("delivered", "late", "failed", "pending", "after_s"):
        assert getattr(quick, name).tolist() == getattr(slow, name).tolist()
    for name in ("learnt", "active"):
        ours, theirs = getattr(quick, name), getattr(slow, name)
        assert (ours.began_s.tolist(), ours.finish_s.tolist()) == (theirs.began_s.tolist(), theirs.finish_s.tolist())
    assert quick.learnt.censored is not None
    assert slow.learnt.censored is not None
    assert quick.learnt.censored.tolist() == slow.learnt.censored.tolist()
    assert (quick.round_s, quick.cut_s) == (slow.round_s, slow.cut_s)


@pytest.mark.parametrize(
    "fields",
    [{"late_s": np.array([9.0])}, {"leaves_s": np.array([INF])}, {"arrived": np.array([True])}, {"ended_s": 3.0}],
)
def test_what_may_be_amiss(fields: dict[str, object]) -> None:
    timing = Timing(np.array([1.0]), np.array([2.0]))
    assert not Observed(**({"timing": timing, "late_s": np.array([INF])} | fields)).nothing_is_amiss  # type: ignore[arg-type]
    assert not Observed(Timing(np.array([1.0]), np.array([INF])), np.array([INF])).nothing_is_amiss
