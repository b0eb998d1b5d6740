"""What may come over the network, and what holds where it says nothing."""

import re
from typing import Any

import pytest

import fedcell as fc
from fedcell.dashboard.limits import known_policy, known_race
from fedcell.runs.race import default_race


def test_a_race_of_which_nothing_is_said_is_the_papers() -> None:
    assert known_race({}, None, 5) == default_race()


@pytest.mark.parametrize(
    ("document", "radius_m"),
    [({}, 1400.0), ({"cell": {"fading": "rician"}}, 1400.0), ({"cell": {"radius_m": 300.0}}, 300.0)],
)
def test_a_race_is_in_its_own_cell_or_in_fig_3s(document: dict[str, Any], radius_m: float) -> None:
    before = repr(document)
    assert known_race(document, ["all"], 1).cell.radius_m == radius_m
    assert repr(document) == before
    with pytest.raises(fc.InputError, match="cell"):
        known_race({"cell": 3}, ["all"], 1)


def test_a_race_has_the_fields_of_diverse_and_their_limits() -> None:
    task = {"averaging": "balanced", "epochs": 0.1}
    race = known_race({"profiles": "labels", "epsilon": 2.0, "task": task}, ["diverse"], 1)
    assert (race.profiles, race.epsilon, race.task.aggregator, race.task.epochs) == ("labels", 2.0, "balanced", 0.1)
    assert known_race({"epsilon": None, "task": {"epochs": 20.0}}, ["diverse"], 1).task.epochs == 20
    with pytest.raises(fc.InputError, match=r"task\.epochs is 21; 20 at most"):
        known_race({"task": {"epochs": 21}}, ["diverse"], 1)
    with pytest.raises(fc.InputError, match=r"task\.epochs is ''"):
        known_race({"task": {"epochs": ""}}, ["diverse"], 1)


def test_policies_by_name_only() -> None:
    assert known_policy("round-robin:k=2") == fc.RoundRobin(2)
    with pytest.raises(fc.InputError, match=r"'os:system' is a Python class, .* named policies only"):
        known_policy("os:system")
    with pytest.raises(fc.InputError, match="a policy has 205 characters; 200 at most"):
        known_policy("all:" + " " * 201)


def test_laws_within_the_limits_and_no_file_of_the_servers() -> None:
    race = known_race({"cell": {"law": "blocks:6"}}, None, 1)
    assert race.cell.law == "blocks:count=6"
    assert race.grid["policy"][-2:] == ["proportional_fair:k=6", "random:k=6"]
    for cell, words in (
        ({"law": "blocs"}, "unknown law 'blocs'"),
        ({"law": "blocks:100001"}, "law has 100001 resource blocks; 100,000 at most"),
        ({"law": "power", "rate": "mcs64"}, "law is 'power', which holds for Shannon's rate, but rate is 'mcs64'"),
        ({"law": 3}, "cell.law"),
        ({"channel": "trace:/etc/passwd"}, "over the network no files"),
    ):
        with pytest.raises(fc.InputError, match=re.escape(words)):
            known_race({"cell": cell}, ["all"], 1)
