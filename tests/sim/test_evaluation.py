from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.sim.evaluation import BUDGET_PART, CLOCK_PART, EVALUATIONS
from fedcell.sim.loop import Simulation
from fedcell.sim.state import Score, State


def spec_of(evaluate: str, **fields: Any) -> fc.Spec:
    task = {"hidden": [4], "sizes": [20] * 20, "evaluate": evaluate}
    given: dict[str, Any] = {"policy": "auto", "budget_s": 12.0} | fields
    return fc.Spec(**given, task=fc.TaskSpec(**task))  # type: ignore[arg-type]


def rounds_of(evaluate: str, **fields: Any) -> list[fc.RoundRecord]:
    return list(fc.simulate(spec_of(evaluate, **fields)))


def evaluated(records: list[fc.RoundRecord]) -> list[int]:
    return sorted({int(record.evaluated) for record in records})


@pytest.mark.parametrize("line", ["rounds:1", "rounds:10", "seconds:2", "seconds:0.123456789", "auto"])
def test_lines(line: str) -> None:
    assert EVALUATIONS.parse(line).line == line
    assert fc.TaskSpec(evaluate=line).evaluate == line
    assert fc.TaskSpec(evaluate=EVALUATIONS.parse(line)).evaluate == line  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sometimes", "unknown evaluation 'sometimes'"),
        ("rounds:0", "rounds is 0; give a whole number of at least 1"),
        ("rounds:0.5", "give a whole number"),
        ("seconds:0", "seconds is 0"),
        ("seconds", "needs every"),
        ("auto:3", "takes no settings"),
    ],
)
def test_what_is_refused(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.TaskSpec(evaluate=line)


def test_the_usual_is_the_papers_and_no_part_of_the_key() -> None:
    assert fc.Spec().task.evaluate == "rounds:1"
    assert fc.Spec(task=fc.TaskSpec(evaluate="rounds")).key() == fc.Spec().key()
    assert fc.Spec(task=fc.TaskSpec(evaluate="auto")).key() != fc.Spec().key()


@pytest.mark.parametrize("evaluate", ["rounds:7", "seconds:1.5", "auto"])
def test_only_accuracy_and_loss_depend_on_it(evaluate: str) -> None:
    """The same rounds; where a model was evaluated, it is as good as when all are, and in between as before."""
    every, some = rounds_of("rounds:1"), rounds_of(evaluate)
    assert [record.evaluated for record in every] == [record.round for record in every]
    assert len(every) == len(some) > 30
    for one, other in zip(every, some, strict=True):
        assert (one.clock_s, one.joules, one.sent_bytes) == (other.clock_s, other.joules, other.sent_bytes)
        last = every[int(other.evaluated) - 1]
        assert (other.accuracy, other.loss) == (last.accuracy, last.loss)
    assert len(evaluated(some)) < len(every)


def test_every_seventh_round_and_the_first_and_last() -> None:
    records = rounds_of("rounds:7", rounds=20, budget_s=1e9)
    assert evaluated(records) == [1, 7, 14, 20]


def test_seconds_between() -> None:
    records = rounds_of("seconds:1.5")
    clocks_s = [records[r - 1].clock_s for r in evaluated(records)]
    between_s, round_s = np.diff(clocks_s[:-1]), max(record.round_s for record in records)
    assert between_s.min() >= 1.5
    assert between_s.max() < 1.5 + round_s


def test_as_often_as_needed() -> None:
    """When an accuracy was reached is known to 5 % early, later to 1 % of the budget, or to one round."""
    records = rounds_of("auto", budget_s=40.0)
    numbers = evaluated(records)
    for before, after in pairwise(numbers):
        first, last, clock_s = records[before - 1], records[after - 1], records[after - 2].clock_s
        unknown_s = clock_s - first.clock_s  # the round before was not due
        assert after == before + 1 or unknown_s < min(BUDGET_PART * 40.0, CLOCK_PART * clock_s)
        assert last.clock_s > first.clock_s
    assert len(numbers) < 0.8 * len(records)


def test_a_last_round_that_can_be_foreseen_is_evaluated() -> None:
    """Rounds of one length: another one would exceed the budget."""
    records = rounds_of("rounds:1000", policy="all", budget_s=100.0, devices={"mobility": "static"})
    assert records[-1].evaluated == records[-1].round > 1


def test_a_target_is_reached_when_it_is_seen() -> None:
    first = next(record for record in rounds_of("rounds:1") if record.accuracy >= 0.25)
    some = rounds_of("rounds:5", target_accuracy=0.25)
    assert some[-1].accuracy >= 0.25
    assert some[-1].round == -(-first.round // 5) * 5


def test_a_run_goes_on_with_its_score() -> None:
    """A saved state repeats the last accuracy; one of version 0.2 has none and is evaluated."""
    run = Simulation.load(spec_of("rounds:50"))
    step = run.step(run.start())
    assert step is not None
    record, state = step
    again, old = State.from_bytes(state.to_bytes()), State.from_bytes(state.to_bytes())
    assert again.score == state.score == Score(record.accuracy, record.loss, 1, record.clock_s)
    object.__setattr__(old, "score", Score())
    after, after_old = run.step(again), run.step(State.from_bytes(old.to_bytes()))
    assert after is not None
    assert after_old is not None
    assert (after[0].accuracy, after[0].evaluated) == (record.accuracy, 1)
    assert after_old[0].evaluated == 2
