"""Rows of a results file become checked values, or something that says what is damaged."""

import json
import math
import os
import platform
import time
from typing import Any

import pytest

import fedcell as fc
from fedcell.runs import stored
from fedcell.runs.store import spec_document
from fedcell.runs.stored import StoredRace, StoredRun, damaged_race, stored_race, stored_run, stored_tournament

KEY = "0123456789abcdef" * 4
SPEC = fc.Spec(rounds=3, policy="random:k=2", seed=7)
RUN: dict[str, Any] = {
    "key": KEY,
    "document": json.dumps(spec_document(SPEC)),
    "status": "done",
    "reason": "",
    "finished_unix_s": 5,
    "duration_s": 1.5,
    "source": "simulation",
    "rounds": 3,
    "best": 0.8,
    "last": 0.7,
    "loss": 0.5,
    "infinite": None,
}


def run(**changes: Any) -> StoredRun:
    return stored_run(tuple({**RUN, **changes}.values()))


def document(**changes: Any) -> str:
    return json.dumps(spec_document(SPEC) | changes)


def test_a_run_in_order_is_what_the_file_says() -> None:
    one = run()
    assert (one.key, one.status, one.reason, one.policy, one.seed) == (KEY, "done", "", "random:k=2", 7)
    assert (one.finished_unix_s, one.duration_s, one.rounds) == (5.0, 1.5, 3)
    assert (one.best_accuracy, one.last_accuracy, one.source, one.diverged) == (0.8, 0.7, "simulation", False)
    assert one.doubt == ""
    assert one.spec == SPEC
    assert one.columns["rounds_limit"] == 3
    assert one.columns["budget_s"] is None
    assert one.columns["cell.radius_m"] == 1400.0
    assert not {"version", "rounds", "cell"} & set(one.columns)
    empty = run(best=None, last=None, loss=None, rounds=0, status="unfinished")
    assert math.isnan(empty.best_accuracy)
    assert math.isnan(empty.last_accuracy)
    assert run(loss=math.inf).diverged


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key": "a/../b"}, "its key is not 64 hexadecimal digits"),
        ({"key": KEY + "0"}, "its key is not 64 hexadecimal digits"),
        ({"key": KEY.upper()}, "its key is not 64 hexadecimal digits"),
        ({"status": "damaged"}, "status: input should be 'done', 'failed' or 'unfinished'"),
        ({"finished_unix_s": 2.6e11}, "finished_unix_s: input should be less than or equal to 250000000000"),
        ({"finished_unix_s": -2.6e11}, "finished_unix_s: input should be greater than or equal to -250000000000"),
        ({"duration_s": "x"}, "duration_s: input should be a valid number"),
        ({"duration_s": math.inf}, "duration_s: input should be a finite number"),
        ({"source": "rumour"}, "source: input should be 'simulation', 'flower' or 'testbed'"),
        ({"best": "high"}, "best: input should be a valid number"),
        ({"reason": b"x"}, "its reason is not text"),
        ({"document": document(policy="")}, "policy: string should have at least 1 character"),
        ({"document": document(policy="x" * 1001)}, "policy: string should have at most 1000 characters"),
        ({"document": document(seed=-1)}, "seed: input should be greater than or equal to 0"),
        ({"document": document(policy="a\x1b[2J")}, "its specification has characters that cannot be printed"),
        ({"document": document(cell={"a\x07": 1})}, "its specification has characters that cannot be printed"),
        ({"document": document(grid={"x": ["\x07"]})}, "its specification has characters that cannot be printed"),
        ({"document": "[1]"}, "its document is no table"),
        ({"document": b"{}"}, "its document is not text of up to 32 MiB"),
        ({"document": '{"seed": Infinity}'}, "its document has Infinity, which JSON lacks"),
        ({"document": '{"seed": 1e999}'}, "its document has a number beyond all floats"),
        ({"document": '{"seed": ' + str(2**256) + "}"}, "its document has a number of more than 256 bits"),
        ({"document": '{"policy": "\\ud800"}'}, "UnicodeEncodeError"),
        ({"document": "{" * 9}, "JSONDecodeError"),
    ],
)
def test_a_damaged_run_says_what_is_wrong_and_the_rest_is_blank(changes: dict[str, Any], why: str) -> None:
    one = run(**changes)
    assert (one.status, one.policy, one.seed, one.rounds) == ("damaged", "?", -1, 0)
    assert one.reason.startswith("damaged in the file (")
    assert why in one.reason
    assert stored.is_key(one.key)
    assert (one.key == KEY) == ("key" not in changes)
    assert (one.finished_unix_s, one.duration_s) == (0.0, 0.0)


def test_a_document_is_at_most_eight_deep_and_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(depth: int) -> str:
        return '{"a": ' + "[" * depth + "1" + "]" * depth + "}"

    assert stored.document_in(nested(6)) == {"a": [[[[[[1]]]]]]}
    with pytest.raises(ValueError, match="its document is too deep"):
        stored.document_in(nested(7))
    assert stored.document_in('{"n": ' + str(2**256 - 1) + "}") == {"n": 2**256 - 1}
    monkeypatch.setattr(stored, "MAX_TEXT", 8)
    assert stored.document_in('{"a": 1}') == {"a": 1}
    with pytest.raises(ValueError, match="not text of up to"):
        stored.document_in('{"a": 12}')


def test_a_document_that_is_read_in_parts_is_what_it_is_as_a_whole() -> None:
    """As fedcell writes them, the policy and the seed come first; runs that differ in these alone share the rest."""
    plain = spec_document(SPEC)
    backwards = dict(reversed(plain.items()))
    assert run(document=json.dumps(backwards)).document == run().document == plain
    assert run(document=document(seed=8)).fields is run(document=document(policy="all")).fields
    assert run(document=document(seed=8)).seed == 8
    assert run(document=document(seed=10**18)).seed == 10**18
    assert run(document=document(policy='a "b')).policy == 'a "b'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps(spec_document(SPEC))[:-1], "JSONDecodeError"),
        (json.dumps(spec_document(SPEC)) + "}", "JSONDecodeError"),
        (json.dumps(spec_document(SPEC))[:-1] + ', "seed": 1}', "its policy or its seed twice"),
        (json.dumps(spec_document(SPEC)).replace('"seed": 7', '"seed": 07'), "JSONDecodeError"),
        (json.dumps(spec_document(SPEC)).replace("random:k=2", "\ud800"), "UnicodeEncodeError"),
        (json.dumps(spec_document(SPEC)).replace("random:k=2", "\x7f"), "characters that cannot be printed"),
        (json.dumps(spec_document(SPEC)).replace("random:k=2", ""), "policy: string should have at least 1"),
    ],
)
def test_a_damaged_document_is_found_in_its_parts_too(text: str, why: str) -> None:
    one = run(document=text)
    assert one.status == "damaged"
    assert why in one.reason


def test_a_long_reason_is_cut_and_cannot_command_a_terminal() -> None:
    assert run(status="failed", reason="x" * 2001).reason == "x" * 2000
    assert "\x1b" not in run(status="failed", reason="\x1b[2J").reason
    assert len(run(key="x" * 999, document="{" + "x" * 999).reason) < 330


def test_the_limits_of_what_is_shown() -> None:
    assert (stored.MAX_TEXT, stored.MAX_REASON, stored.MAX_POLICY) == (32 * 2**20, 2000, 1000)
    assert (stored.MAX_REMEMBERED, stored.MAX_POLICIES, stored.LATE_S) == (50_000, 500, 10.0)


def old(**changes: Any) -> str:
    plain = {name: value for name, value in spec_document(SPEC).items() if name != "version"}
    return json.dumps({**plain, **changes})


def test_what_0_2_had_wrong_is_said_of_simulated_runs_that_are_done() -> None:
    assert run(infinite=2).doubt.startswith("joules of round 2 infinite")
    assert run(infinite=2).doubt.endswith("run it again, and it is computed anew")
    assert run(infinite=2, status="failed").doubt == ""
    assert run(infinite=2, source="flower").doubt == ""
    assert run(document=old(), rounds=0).doubt.startswith("no round fits into the budget, which version 0.2 counted")
    assert run(document=old(), rounds=1).doubt == ""
    assert run(rounds=0).doubt == ""


RACE: dict[str, Any] = {
    "id": "0a",
    "document": '{"spec": {}}',
    "state": "running",
    "created_unix_s": 5,
    "seen_unix_s": 6,
    "owner": "here 12",
}


def race(**changes: Any) -> StoredRace:
    return stored_race(tuple({**RACE, **changes}.values()))


def test_a_race_in_order_and_damaged_ones() -> None:
    assert race() == StoredRace("0a", {"spec": {}}, "running", 5.0, 6.0, "here 12")
    assert race(id="f" * 32).id == "f" * 32
    for changes, why in (
        ({"id": "f" * 33}, "its id is not up to 32 hexadecimal digits"),
        ({"id": ""}, "its id is not up to 32 hexadecimal digits"),
        ({"id": b"a"}, "its id is not up to 32 hexadecimal digits"),
        ({"state": "damaged"}, "state: input should be"),
        ({"owner": "x" * 1001}, "owner: string should have at most 1000 characters"),
        ({"seen_unix_s": 3e11}, "seen_unix_s: input should be less"),
        ({"document": "{}x"}, "JSONDecodeError"),
    ):
        one = race(**changes)
        assert (one.state, one.created_unix_s, one.owner) == ("damaged", 0.0, "")
        assert why in one.document["reason"]
        assert stored._is_id(one.id)
        assert (one.id == "0a") == ("id" not in changes)
    assert len(damaged_race("x", "why").id) == 32


def test_a_race_is_under_way_while_its_process_lives_and_says_so() -> None:
    here, now = platform.node(), time.time()

    def under_way(owner: str, seen_unix_s: float = now, state: str = "running") -> bool:
        return StoredRace("a", {}, state, 0.0, seen_unix_s, owner).is_under_way

    assert under_way(f"{here} {os.getpid()}")
    assert under_way(f"{here} {os.getppid()}")
    assert under_way("elsewhere 1x")  # another machine's: who knows
    for process in ("4194305", "x", "١٢", "9" * 30):
        assert not under_way(f"{here} {process}")
    assert not under_way(f"{here} {os.getpid()}", now - 11.0)
    assert under_way(f"{here} {os.getpid()}", now - 8.0)
    for state in ("stopped", "done", "failed", "interrupted", "damaged"):
        assert not under_way(f"{here} {os.getpid()}", state=state)
    for state in ("queued", "running", "paused", "stopping"):
        assert under_way(f"{here} {os.getpid()}", state=state)


def scenario(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "about": "", "target": 0.8, "spec": {}, **changes}


def tournament(keys: int = 4, **changes: Any) -> Any:
    found = {"scenarios": [scenario("a"), scenario("b")], "policies": ["all"], "seeds": [0, 1], **changes}
    return stored_tournament(("0a", json.dumps(found), 5, b"".join(bytes([n]) * 32 for n in range(keys))))


def test_a_tournament_in_order() -> None:
    one = tournament()
    assert (one.id, one.asked_unix_s, one.damage) == ("0a", 5.0, "")
    assert one.keys == [f"{n:02x}" * 32 for n in range(4)]
    assert one.document["policies"] == ["all"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"keys": 3}, "it does not have a key for each run"),
        ({"keys": 5}, "it does not have a key for each run"),
        ({"seeds": [0, 0]}, "it has something twice, or no proper keys"),
        ({"scenarios": [scenario("a")] * 2}, "it has something twice, or no proper keys"),
        ({"policies": ["x"] * 501}, "policies: list should have at most 500 items"),
        ({"policies": []}, "policies: list should have at least 1 item"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"scenarios": []}, "scenarios: list should have at least 1 item"),
        ({"scenarios": [scenario("a", target=0.0)]}, "scenarios.0.target: input should be greater than 0"),
        ({"scenarios": [scenario("a", target=1.1)]}, "scenarios.0.target: input should be less than or equal to 1"),
        ({"scenarios": [scenario("a" * 501)]}, "scenarios.0.name: string should have at most 500 characters"),
        ({"scenarios": [scenario("a", about="a" * 2001)]}, "about: string should have at most 2000 characters"),
    ],
)
def test_a_damaged_tournament_has_nothing_in_it(changes: dict[str, Any], why: str) -> None:
    one = tournament(**changes)
    assert why in one.damage
    assert (one.id, one.keys, one.asked_unix_s) == ("0a", [], 0.0)
    assert one.document == {"scenarios": [], "policies": [], "seeds": []}


def test_a_tournament_remembers_so_many_runs_and_whole_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_REMEMBERED", 4)
    assert not tournament().damage
    monkeypatch.setattr(stored, "MAX_REMEMBERED", 3)
    assert "it does not have a key for each run" in tournament().damage
    found = {"scenarios": [scenario("a")], "policies": ["all"], "seeds": [0]}
    cut = stored_tournament(("0a", json.dumps(found), 5, b"\x01" * 31))
    assert "no proper keys" in cut.damage
    nobody = stored_tournament((7, json.dumps(found), 5, b"\x01" * 32))
    assert (len(nobody.id), nobody.damage[:31]) == (16, "damaged in the file (its id is ")
