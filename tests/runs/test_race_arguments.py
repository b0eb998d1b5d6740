"""What Python gives is checked as the command line checks it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from harness import TINY

SPEC = fc.Spec(**TINY, grid={"policy": ["all", "random:k=2"], "seed": [0]})


def test_a_store_may_be_a_path(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    first = fc.run_race(SPEC, store=path)
    events: list[Any] = []
    fc.run_race(SPEC, store=str(path), watch=events.append)
    assert [event.records for event in events] == [None, None]  # from the store
    assert fc.run_sweep(SPEC, path).skipped == 2
    one = fc.Scenario("one", "", 0.5, SPEC.changed({"budget_s": 100.0}, {}))
    wanted = fc.Tournament([one], ["all", "round_robin:2"], [0])
    assert len(fc.run_tournament(wanted, path).rounds) == 2
    with fc.Store(path, "read") as store:
        assert len(store.runs()) == 4
        assert len(store.races()) == 1
    assert first.complete


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fc.run_race(SPEC, target=80), "target is 80; give an accuracy between 0 and 1, such as 0.8"),
        (lambda: fc.run_race(SPEC, target="0.8"), "target is '0.8'; give an accuracy between 0 and 1, such as 0.8"),  # type: ignore[arg-type]
        (lambda: fc.run_race("greedy"), "run_race takes a Spec, not 'greedy'; write Spec(policy='greedy'), or"),  # type: ignore[arg-type]
        (lambda: fc.run_race(SPEC, store=3), "store is 3; give a Store, or the path of a results file"),  # type: ignore[arg-type]
        (lambda: fc.run_sweep("greedy", "no.db"), "run_sweep takes a Spec, not 'greedy'"),  # type: ignore[arg-type]
        (lambda: fc.run_sweep(SPEC, None), "run_sweep needs a store; give a Store, or the path of a results file"),  # type: ignore[arg-type]
        (lambda: fc.run_race(SPEC).figure(by="rounds"), "by is 'rounds'; choose from energy, time"),  # type: ignore[arg-type]
        (lambda: fc.run_race(SPEC).verdicts("enrgy"), "by is 'enrgy'; did you mean 'energy'?"),  # type: ignore[arg-type]
        (lambda: fc.All().decide(fc.RoundView([1.0], [1.0]), 0), "rng is 0; give a random generator, such as np.ran"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    call: Callable[[], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fc.InputError) as told:
        call()
    assert str(told.value).startswith(said)
    assert list(tmp_path.iterdir()) == []
