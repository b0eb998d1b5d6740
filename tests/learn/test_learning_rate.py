import math
from typing import Any

import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.learn.learning_rate import parse_schedule
from fedcell.sim.spec import parse_spec


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("constant", [1.0, 1.0, 1.0]),
        ("exponential:factor=0.5", [1.0, 0.5, 0.25]),
        ("step:every=2,factor=0.1", [1.0, 1.0, 0.1]),
        ("cosine:rounds=2,end=0.2", [1.0, 0.6, 0.2, 0.2]),
    ],
)
def test_factors(text: str, factors: list[float]) -> None:
    schedule = parse_schedule(text)
    assert [schedule(r) for r in range(len(factors))] == pytest.approx(factors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosin:rounds=3", "unknown learning-rate schedule 'cosin'"),
        ("cosine", "needs rounds"),
        ("exponential:factor=0", "factor is 0"),
        ("step:every=0,factor=0.5", "every is 0"),
    ],
)
def test_bad_schedules_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_schedule(text)
    with pytest.raises(InputError, match=message):
        fc.TaskSpec(schedule=text)


def test_a_schedule_changes_a_run_from_the_round_where_it_differs() -> None:
    small: dict[str, Any] = {"hidden": [4], "sizes": [200] * 4, "partition": "iid"}
    specs = [
        fc.Spec(policy="all", rounds=3, devices=fc.Devices(count=4), task=fc.TaskSpec(**small, schedule=text))
        for text in ("constant", "step:every=2,factor=0.5")
    ]
    plain, stepped = ([record.loss for record in fc.simulate(spec)] for spec in specs)
    assert plain[:2] == stepped[:2]
    assert plain[2] != stepped[2]
    assert all(math.isfinite(loss) for loss in stepped)


def test_stored_runs_keep_their_keys() -> None:
    plain = fc.Spec()
    assert plain.key() == fc.Spec(task=fc.TaskSpec(schedule="constant", precision="float32")).key()
    assert plain.key() != fc.Spec(task=fc.TaskSpec(schedule="exponential:factor=0.9")).key()
    first = parse_spec({"version": 1, "cell": {"radius_m": 1000.0}}, "of version 0.1")
    assert first.key().startswith("9cd8f98ea8f5268f")  # as before there were schedules


@pytest.mark.parametrize(
    "same",
    [
        ["constant", "Constant", " constant "],
        ["cosine:rounds=200", "cosine:rounds=200,end=0.01", "Cosine:end=1e-2,rounds=200"],
        ["step:every=5,factor=0.5", "step:factor=0.50,every=5"],
    ],
)
def test_a_schedule_has_one_key_however_it_is_written(same: list[str]) -> None:
    assert len({fc.Spec(task=fc.TaskSpec(schedule=text)).key() for text in same}) == 1
