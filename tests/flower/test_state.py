"""A run in a folder: saved whole or not at all, read with suspicion, shown by `fedcell flower`."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from fedcell.errors import InputError
from fedcell.flower import state
from fedcell.flower.nodes import Roster
from fedcell.flower.record import ScheduledRound
from fedcell.flower.state import Run, StateDirectory, load_arrays, load_run, save
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
from harness import fedcell

MODEL: dict[str, Any] = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3)}


def a_round(number: int, accuracy: float | None = None, **changes: Any) -> ScheduledRound:
    given: dict[str, Any] = {
        "round": number,
        "clock_s": 11.0 * number,
        "round_s": 11.0,
        "planned_s": 10.0,
        "devices": [0, 2],
        "names": ["0", "2"],
        "shares": [0.4, 0.6],
        "planned_finish_s": [10.0, 10.0],
        "began_s": [4.0, None],
        "finish_s": [11.0, None],
        "delivered": [0],
        "late": [],
        "metrics": {} if accuracy is None else {"server": {"accuracy": accuracy, "loss": 1.0}},
    }
    return ScheduledRound(**given | changes)


def a_run(rounds: int, policy: str = "greedy", seed: int = 0, **kwargs: Any) -> Run:
    spec = Spec(policy=policy, seed=seed) if kwargs.get("spec", True) else None
    done = [a_round(i + 1, kwargs.get("accuracy", 0.1 * (i + 1))) for i in range(rounds)]
    return Run(policy, seed, "FedAvg", done, [], None, spec)


def saved(folder: Path, run: Run) -> Path:
    knowledge = Roster.empty().with_devices(["0", "1", "2"])
    for number in range(1, len(run.rounds) + 1):
        part = Run(run.policy, run.seed, run.strategy, run.rounds[:number], [], None, run.spec)
        save(folder, part, knowledge, MODEL, {"0/m_t/dw": np.ones(2)})
    return folder


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    run = load_run(saved(tmp_path, a_run(3)))
    assert run.rounds == a_run(3).rounds
    assert (run.policy, run.seed, run.strategy, run.names) == ("greedy", 0, "FedAvg", ["0", "1", "2"])
    assert run.spec == Spec()
    knowledge, model, inner = load_arrays(tmp_path, run)
    assert knowledge.names == ("0", "1", "2")
    assert list(model) == list(MODEL)
    assert all(np.array_equal(model[name], MODEL[name]) for name in MODEL)
    assert inner["0/m_t/dw"].tolist() == [1.0, 1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fedcell-3.npz", "rounds.jsonl", "state.json"]


def test_a_server_killed_while_it_saves_leaves_the_last_whole_round(tmp_path: Path) -> None:
    saved(tmp_path, a_run(2))
    before = (tmp_path / "state.json").read_bytes()
    # Killed after the model and the line of round 3, before state.json says that they count.
    saved(tmp_path, a_run(3))
    (tmp_path / "state.json").write_bytes(before)
    (tmp_path / "fedcell-2.npz").write_bytes((tmp_path / "fedcell-3.npz").read_bytes())
    with (tmp_path / "rounds.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "clo')
    run = load_run(tmp_path)
    assert [done.round for done in run.rounds] == [1, 2]
    other = a_round(3, 0.9)
    save(tmp_path, Run("greedy", 0, "FedAvg", [*run.rounds, other], [], None, None), Roster.empty(), MODEL, {})
    assert load_run(tmp_path).rounds[-1] == other
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) == 3


def test_a_round_says_who_was_missing_and_becomes_the_simulators_record() -> None:
    done = a_round(1, 0.5)
    assert done.missing == [2]
    record = done.record()
    assert record.plan.devices.tolist() == [0, 2]
    assert record.plan.round_s == 10.0
    assert (record.round_s, record.accuracy, record.delivered.tolist()) == (11.0, 0.5, [0])
    assert math.isnan(a_round(1).record().accuracy)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("state.json", b"{", "is not JSON"),
        ("state.json", b"[1]", "is not a state of fedcell"),
        ("state.json", b'{"fedcell_state": 99}', "has version 99"),
        ("state.json", b'{"fedcell_state": 1}', "not a complete state directory"),
        ("rounds.jsonl", b"", "it has 0 rounds of 2"),
        ("rounds.jsonl", b'{"round": 1}\n{"round": 2}\n', "not a complete state directory"),
    ],
)
def test_a_folder_of_garbage_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    saved(tmp_path, a_run(2))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        ({"policy": "\x1b]0;pwn\x07\x1b[2J"}, {}, "policy: .*characters that cannot be printed"),
        ({"policy": "x" * 10_000_000}, {}, "policy: .*at most 1000 characters"),
        ({"names": ["0", "\x1b[2J", "2"]}, {}, "names.1: "),
        ({"seed": "x"}, {}, "seed: "),
        ({"seed": 1e999}, {}, "seed: "),
        ({"rounds": "two"}, {}, "rounds: "),
        ({"spec": "a = " + "[" * 100_000}, {}, "RecursionError"),
        ({"spec": 5}, {}, "spec: "),
        ({"initial": {"server": 5}}, {}, "TypeError"),
        ({}, {"devices": "ab"}, "devices: "),
        ({}, {"devices": [0]}, "round 1 does not have an entry for each"),
        ({}, {"planned_s": "x"}, "planned_s: "),
        ({}, {"late": 5}, "late: "),
        ({}, {"clock_s": 1e308}, "round 1 took longer than 1e.12 s"),
        ({}, {"clock_s": None, "planned_s": 1e308}, "round 1 took longer than 1e.12 s"),
        ({}, {"round_s": None}, "round 1 took longer than 1e.12 s"),
        ({}, {"names": ["0", "\x1b"]}, "round 1 has names that cannot be printed"),
        ({}, {"metrics": {"server": {"accuracy": "[link]"}}}, "ValueError"),
    ],
)
@pytest.mark.processes
def test_values_of_the_wrong_kind_are_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], line: dict[str, Any], said: str
) -> None:
    saved(tmp_path, a_run(2))
    state, rounds = tmp_path / "state.json", tmp_path / "rounds.jsonl"
    state.write_text(json.dumps(json.loads(state.read_text()) | changes))
    first, second = rounds.read_text().splitlines()
    rounds.write_text(json.dumps(json.loads(first) | line) + "\n" + second + "\n")
    with pytest.raises(InputError, match=f"is not a complete state directory of fedcell .*{said}"):
        load_run(tmp_path)


@pytest.mark.processes
def test_deep_json_and_pipes_are_refused_and_old_gaps_are_read(tmp_path: Path) -> None:
    saved(tmp_path, a_run(2))
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    told = json.loads(lines[0]) | {"planned_s": None, "planned_finish_s": [10.0, None]}  # how infinity was written
    (tmp_path / "rounds.jsonl").write_text(json.dumps(told) + "\n" + lines[1] + "\n")
    run = load_run(tmp_path)
    assert math.isnan(run.rounds[0].planned_s)
    assert math.isnan(run.rounds[0].planned_finish_s[1])
    (tmp_path / "rounds.jsonl").write_text("[" * 100_000 + "\n" + lines[1] + "\n")
    with pytest.raises(InputError, match=r"not a complete state directory of fedcell \(RecursionError"):
        load_run(tmp_path)
    (tmp_path / "state.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="is not JSON"):
        load_run(tmp_path)
    (tmp_path / "state.json").unlink()
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(InputError, match="is not a regular file"):
        load_run(tmp_path)


@pytest.mark.processes
def test_the_text_of_a_directory_is_no_markup_and_nothing_that_it_names_is_imported(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", a_run(2))
    state = one / "state.json"
    planted = 'policy = "evil:X"\nrounds = 1\n[task]\nengine = "torch"\nmodel = "evil:f"\n[grid]\npolicy = ["evil:Y"]\n'
    words = {"policy": "x[/nonsense][link=http://evil]y", "spec": planted}
    state.write_text(json.dumps(json.loads(state.read_text()) | words))
    (tmp_path / "evil.py").write_text("open('PWNED', 'w').close()\n")
    for options in ([], ["--json"], ["--plot", "f.png"]):
        done = fedcell("flower", "one", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "x[/nonsense][link=http://evil]y" in done.stdout
    done = fedcell("flower", "one", "--store", "r.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "'evil' is user-defined code; add --allow-import if you trust the file" in done.stderr
    assert not (tmp_path / "PWNED").exists()
    done = fedcell("flower", "one", "--store", "r.db", "--allow-import", cwd=tmp_path)
    assert (done.returncode, "module 'evil' has no 'X'" in done.stderr) == (2, True)
    assert (tmp_path / "PWNED").exists()


def test_a_directory_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cannot read .*state\.json: No such file or directory; give the directory"):
        load_run(tmp_path / "nowhere")


def test_a_model_elsewhere_or_a_pickle_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path, a_run(1))
    document = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps(document | {"model": "../fedcell-1.npz"}))
    with pytest.raises(InputError, match="is outside of it"):
        load_run(tmp_path)
    (tmp_path / "state.json").write_text(json.dumps(document))
    np.savez(tmp_path / "fedcell-1.npz", **{"model/0": np.array([{}], dtype=object)}, allow_pickle=True)
    with pytest.raises(InputError, match="cannot be resumed"):
        load_arrays(tmp_path, load_run(tmp_path))


@pytest.mark.processes
def test_fedcell_flower_shows_runs_as_a_race_and_their_planned_and_measured_times(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", a_run(4))
    two = saved(tmp_path / "two", a_run(4, "random:k=8", accuracy=0.35))
    done = fedcell("flower", one, two, "--target", "0.3", "--plot", tmp_path / "f.png", "--store", tmp_path / "r.db")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "greedy 40.00 40.00 40.00 40.00" in lines
    assert "greedy 33 s 33 s 1 of 1" in lines
    assert "random:k=8 35.00 35.00 35.00 35.00" in lines
    assert "random:k=8 11 s 11 s 1 of 1" in lines
    assert "greedy 0 4 10 11 10.00 % 10.00 % 0 4" in lines
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    with Store(tmp_path / "r.db", "read") as store:
        found = {run.policy: run for run in store.runs()}
        assert {run.source for run in found.values()} == {"flower"}
        measured = store.measured(found["greedy"].key)
        assert measured[0].predicted_s.tolist() == [10.0, 10.0]
        assert np.isnan(measured[0].measured_s).tolist() == [False, True]
    document = json.loads(fedcell("flower", one, "--json").stdout)
    assert document["runs"][0]["measured_s"] == [11.0] * 4


@pytest.mark.processes
def test_runs_without_accuracy_still_show_their_times(tmp_path: Path) -> None:
    lines = (saved(tmp_path, a_run(2, accuracy=None)) / "rounds.jsonl").read_text().splitlines()
    first = json.dumps(json.loads(lines[0]) | {"planned_s": None})  # a round of unknown times, as it was written once
    (tmp_path / "rounds.jsonl").write_text(first + "\n" + lines[1] + "\n")
    done = fedcell("flower", tmp_path, "--plot", tmp_path / "f.svg")
    assert done.returncode == 0, done.stderr
    assert "The rounds have no accuracy" in done.stdout
    assert "Rounds as planned and as measured" in done.stdout
    assert "greedy 0 2 10 11 10.00 % 10.00 %" in " ".join(done.stdout.split())


def test_mistakes_get_one_sentence_and_leave_nothing(
    tmp_path: Path, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    one = saved(tmp_path / "one", a_run(1))
    bare = saved(tmp_path / "bare", a_run(1, spec=False))
    other = saved(tmp_path / "other", a_run(1, "all", seed=5))
    for arguments, complaint in (
        ([tmp_path / "none"], "cannot read"),
        ([tmp_path, tmp_path], "none of the directories has a complete round yet"),
        ([one, other], "no seed in common"),
        ([one, "--target", "80"], "--target is 80"),
        ([one, "--plot", tmp_path / "x.txt"], "is not a figure's name"),
        ([bare, "--store", tmp_path / "r.db"], "give Scheduled the run's spec"),
    ):
        done = fedcell_here("flower", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert complaint in done.stderr.splitlines()[-1]
        assert done.stderr.count("\n") == 1 + done.stderr.count("is left out")
    assert not (tmp_path / "r.db").exists()


def test_runs_of_one_policy_and_seed_are_told_apart_and_unbegun_ones_left_out(
    tmp_path: Path, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    """As `fedcell flower ~/fedcell-runs/*` finds them."""
    one, two = saved(tmp_path / "one", a_run(2)), saved(tmp_path / "two", a_run(2, accuracy=0.9))
    (unbegun := tmp_path / "unbegun").mkdir()
    done = fedcell_here("flower", one, two, unbegun)
    assert done.returncode == 0
    assert f"{unbegun} has no complete round and is left out" in done.stderr
    assert "greedy (one)" in done.stdout
    assert "greedy (two)" in done.stdout


def test_accuracies_may_be_measured_now_and_then_and_need_not_be_numbers(
    tmp_path: Path, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    rounds = [a_round(1), a_round(2, 0.5), a_round(3, math.nan)]
    saved(tmp_path, Run("greedy", 0, "FedAvg", rounds, [], None, Spec()))
    done = fedcell_here("flower", tmp_path)
    assert done.returncode == 0
    assert "50.00" in done.stdout
    document = json.loads(fedcell_here("flower", tmp_path, "--json").stdout)
    assert document["runs"][0]["rounds"][2]["metrics"]["server"]["accuracy"] is None


def test_nothing_but_its_own_files_is_deleted(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("model-best.npz", "model-1.npz", "checkpoint-1.npz", "notes.txt")]
    for path in others:
        path.write_text("mine")
    saved(tmp_path, a_run(3))
    assert [path.read_text() for path in others] == ["mine"] * 4
    assert [path.name for path in tmp_path.glob("fedcell-*.npz")] == ["fedcell-3.npz"]


def test_the_limits_of_a_state() -> None:
    assert (state.STATE_VERSION, state.MAX_STATE_BYTES, state.MAX_ROUND_S) == (1, 64 * 2**20, 1e12)


class Counting(FedAvg):
    """A strategy with a number that changes and an accountant."""

    def __init__(self) -> None:
        super().__init__()
        self.clipped, self.accountant = 1.0, Ledger()


def test_a_state_directory_saves_privacy_numbers_and_rounds_or_nothing_at_all(tmp_path: Path) -> None:
    strategy = Counting()
    nowhere, here = StateDirectory(None, strategy), StateDirectory(tmp_path, strategy)
    arrays = ArrayRecord({"w": Array(np.ones(2, np.float32))})
    strategy.clipped = 2.5
    strategy.accountant.spent = 7
    nowhere.save_privacy()
    nowhere.save_round(a_run(1), Roster.empty(), arrays)
    assert not list(tmp_path.iterdir())
    here.save_privacy()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["privacy.json"]
    here.save_round(a_run(1), Roster.empty(), arrays)
    assert load_run(tmp_path).numbers == {"0/clipped": 2.5}
    assert nowhere.resume(a_run(1), {}) is None
    other = Counting()
    resumed = StateDirectory(tmp_path, other).resume(a_run(1), {"w": ((2,), "f")})
    assert resumed is not None
    assert (other.clipped, other.accountant.spent) == (2.5, 7)
    assert resumed.arrays["w"].numpy().tolist() == [1.0, 1.0]
    for what, run in (("policy", a_run(1, "all")), ("seed", a_run(1, seed=2))):
        with pytest.raises(InputError, match=f"has a run whose {what} is .*; give another directory or remove it"):
            StateDirectory(tmp_path, Counting()).resume(run, {"w": ((2,), "f")})


class Ledger:
    """A privacy accountant that counts."""

    def __init__(self) -> None:
        self.spent = 0

    def state_dict(self) -> dict[str, Any]:
        return {"spent": self.spent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.spent = int(state["spent"])
