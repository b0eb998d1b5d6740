"""The store: whole or not at all, bit for bit, and nothing of others touched."""

import gzip
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import fedcell as fc
from fedcell.protocol import Knowledge
from fedcell.runs import store_file
from fedcell.runs.records import Rounds, Row, decode, encode
from fedcell.runs.store import Measured, Store, differing_fields
from fedcell.runs.store_file import APPLICATION_ID, MODELS_TABLE, STORE_VERSION, TOURNAMENTS_TABLE
from fedcell.runs.stored import StoredRace, _doubt
from fedcell.schedule.plan import Plan
from fedcell.sim.loop import Simulation
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec, TaskSpec, parse_spec
from fedcell.sim.spec_key import RESULTS_VERSION, TORCH_VERSION
from fedcell.sim.state import State
from harness import PYTHON, Process


def make_records(rounds: int, seed: int = 0, devices: int = 20) -> list[RoundRecord]:
    rng = np.random.default_rng(seed)
    found, clock_s = [], 0.0
    for number in range(1, rounds + 1):
        n = int(rng.integers(1, devices + 1))
        chosen = np.sort(rng.choice(devices, n, replace=False))
        plan = Plan(chosen, rng.dirichlet(np.ones(n)), float(rng.exponential()))
        clock_s += float(rng.exponential())
        delivered = chosen[rng.random(n) < 0.8]
        accuracy, loss, spent = float(rng.random()), float(rng.exponential()), rng.exponential(size=n)
        told = (float(spent.sum()), spent, 0.5, float(rng.integers(2, 33)), 1e3 * delivered.size, float(number))
        found.append(RoundRecord(number, clock_s, plan.round_s, plan, delivered, accuracy, loss, *told))
    return found


def rows_of(records: list[RoundRecord]) -> list[Row]:
    return [encode(record) for record in records]


def bits(records: list[RoundRecord]) -> list[tuple[object, ...]]:
    """All of the records, in a form in which -0.0 is not 0.0 and NaN equals NaN."""
    return [
        (
            r.round,
            *(float(x).hex() for x in (r.clock_s, r.round_s, r.plan.round_s, r.accuracy, r.loss, r.joules)),
            *(float(x).hex() for x in (r.epochs, r.bits, r.sent_bytes)),
            *(math.copysign(1.0, x) for x in (r.accuracy, r.loss)),
            *(a.tobytes() for a in (r.plan.devices, r.plan.shares, r.delivered, r.plan_joules)),
            *(a.dtype.str for a in (r.plan.devices, r.plan.shares, r.delivered, r.plan_joules)),
        )
        for r in records
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_stored_comes_back_bit_for_bit(tmp_path: Path) -> None:
    spec, records, began_s = Spec(rounds=50), make_records(50), time.time()
    odd = [
        RoundRecord(
            51, 1e300, 5e-324, Plan(np.empty(0, np.int64), np.empty(0), 8.0), np.empty(0, np.int64), -0.0, -0.0
        ),
        RoundRecord(52, 1e300, 0.1 + 0.2, records[0].plan, records[0].delivered, 1.0, math.inf),
        RoundRecord(53, 1e300, 3.0, records[0].plan, records[0].delivered, 0.0, math.nan),
        RoundRecord(54, 2e300, 3.0, Plan(np.array([999_999]), np.ones(1), 1.0), np.array([999_999]), 0.5, 1.0),
    ]
    with Store(tmp_path / "results.db") as store:
        assert not store.has(spec)
        store.put(spec, records + odd, duration_s=2.5)
        assert store.has(spec)
        assert bits(store.get(spec)) == bits(records + odd)
    with Store(tmp_path / "results.db", "read") as store:
        assert bits(store.get(spec)) == bits(records + odd)
        (run,) = store.runs()
        assert (run.key, run.status, run.reason, run.rounds, run.duration_s) == (spec.key(), "done", "", 54, 2.5)
        assert run.best_accuracy == 1.0
        assert run.last_accuracy == 0.5
        assert run.spec == spec
        assert run.spec.budget_s == math.inf
        assert began_s <= run.finished_unix_s <= time.time()
        with pytest.raises(fc.InputError, match="cannot be written"):
            store.put(spec, records)
    assert list(files(tmp_path)) == ["results.db"]


def test_encoded_rounds_are_plain_values() -> None:
    """As a file has them: no arrays, no classes."""
    rows = rows_of(make_records(3))
    assert {type(value) for row in rows for value in row} == {int, float, bytes, type(None)}
    assert bits([decode(row) for row in rows]) == bits(make_records(3))
    assert [row[: len(ROUND_COLUMNS)] for row in rows] == [record.numbers() for record in make_records(3)]
    with pytest.raises(ValueError, match="round 1 counts"):
        decode((*rows[0][: len(ROUND_COLUMNS)], *rows[1][len(ROUND_COLUMNS) :]))


def test_failures_are_kept_until_the_run_succeeds(tmp_path: Path) -> None:
    good, bad = Spec(seed=1), Spec(seed=2)
    with Store(tmp_path / "results.db") as store:
        store.put(good, make_records(2))
        store.fail(bad, "worker died")
        store.fail(good, "never mind")
        assert store.has(good)
        assert not store.has(bad)
        assert [(run.seed, run.reason) for run in store.runs(status="failed")] == [(2, "worker died")]
        with pytest.raises(fc.InputError, match="no finished run"):
            store.get(bad)
        store.put(bad, make_records(3))
        assert [run.status for run in store.runs()] == ["done", "done"]
        assert len(store.get(bad)) == 3


def test_a_run_is_done_with_its_model_where_that_is_wanted(tmp_path: Path) -> None:
    plain, modelled = Spec(seed=1), Spec(seed=2)
    keys = [plain.key(), modelled.key(), "0" * 64]
    with Store(tmp_path / "results.db") as store:
        store.put(plain, make_records(1))
        assert store.done(keys) == {keys[0]}
        assert store.done(keys, models=True) == set()  # no model at all
        store.put(modelled, make_records(1), model=np.ones(3, np.float32))
        assert store.done(keys) == {keys[0], keys[1]}
        assert store.done(keys, models=True) == {keys[1]}


def test_filters_prefixes_and_deletion(tmp_path: Path) -> None:
    specs = [Spec(policy=policy, seed=seed) for policy in ("greedy", "all") for seed in range(20)]
    with Store(tmp_path / "results.db") as store:
        for spec in specs:
            store.put(spec, make_records(2, spec.seed))
        keys = sorted(spec.key() for spec in specs)
        assert [run.key for run in store.runs()] == keys
        assert {run.seed for run in store.runs(policy="all")} == set(range(20))
        assert store.find(specs[3].key().upper()[:40]).spec == specs[3]
        letter = next(c for c in "0123456789abcdef" if sum(key.startswith(c) for key in keys) > 1)
        with pytest.raises(fc.InputError, match=rf"'{letter}' begins the keys of \d+ runs .*give more digits"):
            store.find(letter)
        with pytest.raises(fc.InputError, match="has no run 'ffffffffff'"):
            store.find("ffffffffff")
        with pytest.raises(fc.InputError, match="'x%' is not the key"):
            store.find("x%")
        with pytest.raises(fc.InputError, match="'' begins the keys of 40"):
            store.find("")
        assert store.delete([keys[0], keys[5], "0" * 64]) == 2
        assert [run.key for run in store.runs()] == keys[1:5] + keys[6:]
    with sqlite3.connect(tmp_path / "results.db") as db:
        assert db.execute("SELECT count(*), count(DISTINCT key) FROM rounds").fetchone() == (76, 38)
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (38,)
    db.close()


def test_a_run_is_in_it_whole_or_not_at_all(tmp_path: Path) -> None:
    """Interrupted between two rounds, the run before it stays and nothing of it is seen."""
    spec, first = Spec(), make_records(5)
    records = make_records(9, 1)
    with Store(tmp_path / "results.db") as store:
        store.put(spec, first)
        with pytest.raises(fc.InputError, match="UNIQUE"):
            store.put(spec, [*records, records[0]])  # the last insert of the transaction fails
        assert bits(store.get(spec)) == bits(first)
        store.put(spec, records)
        assert len(store.get(spec)) == 9


KILLED = """
import sys, os, signal
import numpy as np
from fedcell.schedule.policy import Plan
from fedcell.sim.record import RoundRecord
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
sys.path.insert(0, {tests!r})
store = Store({path!r})
nobody = np.empty(0, np.int64)
plan = Plan(nobody, np.empty(0), 1.0)
records = [RoundRecord(r, 1.0, 1.0, plan, nobody, 0.5, 0.5, 0.1) for r in range(400)]
seed = 0
while True:
    store.put(Spec(seed=seed), records)
    if seed == 0:
        print("ready", flush=True)
    seed += 1
"""


def test_a_killed_writer_leaves_whole_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    for wait_s in (0.05, 0.11, 0.2):
        code = KILLED.format(path=str(path), tests=str(Path(__file__).parents[1]))
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait_s)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with Store(path, "read") as store:
            runs = store.runs()
        assert runs
        assert {run.rounds for run in runs} == {400}
        assert sorted(run.seed for run in runs) == list(range(len(runs)))


def test_looking_at_an_open_store_does_not_drop_its_locks(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops all of a process's POSIX locks on it, SQLite's among them.

    Another process then believes itself alone and deletes the live write-ahead log, with what comes after.
    """
    path = tmp_path / "results.db"
    code = f"""
import sys
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
with Store({str(path)!r}) as store:
    store.put(Spec(rounds=1, seed=1), [])
    Store({str(path)!r}, "read").close()
    Store({str(path)!r}).close()
    print("open", flush=True)
    sys.stdin.readline()
    store.put(Spec(rounds=1, seed=2), [])
    print("stored", flush=True)
    sys.stdin.readline()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as writer:  # type: ignore[call-overload]
        assert writer.stdout.readline() == "open\n"
        with Store(path, "read") as store:
            assert len(store.runs()) == 1
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "stored\n"
        writer.kill()
    with Store(path, "read") as store:
        assert sorted(run.seed for run in store.runs()) == [1, 2]


def test_the_log_of_a_deleted_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """SQLite would write its pages into the new store: the deleted runs would be back, or the file damaged."""
    path, kept = tmp_path / "results.db", tmp_path / "kept"
    with Store(path) as store:
        store.put(Spec(seed=1), make_records(3))
        for side in ("-wal", "-shm"):  # as a killed process leaves them
            (tmp_path / f"kept{side}").write_bytes((tmp_path / f"results.db{side}").read_bytes())
    os.rename(path, kept)
    for side in ("-wal", "-shm"):
        os.rename(tmp_path / f"kept{side}", tmp_path / f"results.db{side}")
    before = files(tmp_path)
    with pytest.raises(fc.InputError, match=r"results\.db-wal and .*-shm of a deleted or moved results file") as caught:
        Store(path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == before
    os.remove(tmp_path / "results.db-wal")
    with pytest.raises(fc.InputError, match=r"delete .*results\.db-shm too"):
        Store(path)
    os.remove(tmp_path / "results.db-shm")
    with Store(path) as store:
        assert store.runs() == []


def test_others_read_while_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as writer:
        writer.put(Spec(seed=0), make_records(300))
        with Store(path, "read") as reader, Store(path, "read") as other:
            assert len(other.runs()) == 1
            writer._file.db.execute("BEGIN IMMEDIATE")
            writer._file.db.execute("DELETE FROM specs")
            assert len(reader.get(Spec(seed=0))) == 300  # sees the last whole state, and does not wait
            writer._file.db.execute("ROLLBACK")
            writer.put(Spec(seed=1), make_records(3))
            assert len(reader.runs()) == len(other.runs()) == 2
    assert list(files(tmp_path)) == ["results.db"]


def test_a_store_locked_for_long_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as first, Store(path, busy_timeout_s=0.3) as second:
        first._file.db.execute("BEGIN IMMEDIATE")
        with pytest.raises(fc.InputError, match=r"results.db is locked by another process; wait"):
            second.put(Spec(), make_records(1))
        with pytest.raises(fc.InputError, match="is locked"):
            Store(path, busy_timeout_s=0.1)
        first._file.db.execute("ROLLBACK")
        second.put(Spec(), make_records(1))


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (a)")
    db.close()


def newer_store(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute(f"PRAGMA user_version = {STORE_VERSION + 1}")
    db.close()


def lacking_store(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("DROP TABLE rounds")
    db.close()


def filled_store(path: Path) -> bytes:
    with Store(path) as store:
        for seed in range(3):
            store.put(Spec(seed=seed), make_records(60, seed))
    return path.read_bytes()


def truncated(share: float) -> object:
    def make(path: Path) -> None:
        content = filled_store(path)
        path.write_bytes(content[: int(share * len(content))])

    return make


def torn(path: Path) -> None:
    content = bytearray(filled_store(path))
    content[-6 * 4096 : -5 * 4096] = b"\xa5" * 4096
    path.write_bytes(content)


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("no database\n" * 99), "is not a fedcell results file"),
        (lambda path: path.write_bytes(b""), "is not a fedcell results file"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(20)), "is not a fedcell results file"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(5000)), "not a fedcell results file"),
        (other_database, "is an SQLite database but not a fedcell results file"),
        (
            newer_store,
            f"is a results file of version {STORE_VERSION + 1}, and this fedcell reads version {STORE_VERSION}",
        ),
        (lacking_store, "damaged results file .it lacks a table"),
        (truncated(0.5), "damaged results file"),
        (truncated(0.9), "damaged results file"),
        (truncated(0.05), "damaged results file"),
        (torn, "damaged results file"),
    ],
)
def test_what_is_no_store_is_refused_and_left_as_it_is(make: object, words: str, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    make(path)  # type: ignore[operator]
    before, stat = files(tmp_path), path.stat()
    assert list(before) == ["results.db"]
    with pytest.raises(fc.InputError, match=words) as raised:
        Store(path, mode)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert files(tmp_path) == before
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_mtime_ns, stat.st_ino)


def test_places_where_no_store_can_be(tmp_path: Path) -> None:
    with pytest.raises(fc.InputError, match="there is no results file"):
        Store(tmp_path / "missing.db", "read")
    with pytest.raises(fc.InputError, match="is not a directory; create it first"):
        Store(tmp_path / "no" / "results.db")
    with pytest.raises(fc.InputError, match="is a directory"):
        Store(tmp_path)
    with pytest.raises(fc.InputError, match="File name too long"):
        Store(tmp_path / ("x" * 300))
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(fc.InputError, match="there is no results file"):
        Store(tmp_path / "dangling.db")
    (tmp_path / "dangling.db").unlink()
    with pytest.raises(fc.InputError, match="mode is 'append'"):
        Store(tmp_path / "results.db", "append")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unprivileged() -> object:
    """Root may write anywhere: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_read_only_place_is_read_and_never_written(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    path, spec = folder / "results.db", Spec(seed=0)
    filled_store(path)
    path.chmod(0o444)
    folder.chmod(0o555)
    before = files(folder)
    request.getfixturevalue("unprivileged")
    with pytest.raises(fc.InputError, match=r"cannot write .*read-only; give another place"):
        Store(path)
    with pytest.raises(fc.InputError, match=r"cannot write .*read-only; give another place"):
        Store(folder / "new.db")
    with Store(path, "read") as store:
        assert bits(store.get(spec)) == bits(make_records(60, 0))
    assert files(folder) == before
    if os.getuid() == 0:
        os.seteuid(0)
    folder.chmod(0o755)
    if os.getuid() == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    with pytest.raises(fc.InputError, match=r"cannot open .*Permission denied"):
        Store(path)
    with Store(path, "read") as store:
        assert len(store.runs()) == 3
    assert files(folder) == before
    path.chmod(0o644) if os.getuid() != 0 else os.seteuid(0)
    path.unlink()
    folder.rmdir()


def test_a_store_is_found_by_its_header(tmp_path: Path) -> None:
    """Constants of the file format, which never change within a version."""
    Store(tmp_path / "results.db").close()
    header = (tmp_path / "results.db").read_bytes()[:100]
    assert header[60:64] == bytes([0, 0, 0, STORE_VERSION])
    assert header[68:72] == b"fCl1" == APPLICATION_ID.to_bytes(4, "big")


def make_measured(records: list[RoundRecord]) -> list[Measured]:
    found = []
    for r in records:
        n = r.plan.devices.size
        times = np.random.default_rng(r.round).exponential(size=(3, n))
        times[2, 0] = math.nan
        found.append(Measured(r.plan.devices, *times))
    return found


def state_after(rounds: int) -> State:
    knowledge = Knowledge.empty(20)
    return State(rounds, float(rounds), np.arange(5, dtype=np.float32) + rounds, knowledge, np.arange(20.0))


class TestUnfinished:
    def test_a_run_is_kept_as_far_as_it_is_and_goes_on_there(self, tmp_path: Path) -> None:
        spec, records = Spec(), make_records(9)
        key = spec.key()
        with Store(tmp_path / "results.db") as store:
            assert store.unfinished(spec) is None
            store.put_unfinished(spec, records[:4], state_after(4), 1.5, key)
            store.put_unfinished(spec, records[4:6], state_after(6), 2.5, key)
            assert not store.has(spec)
            (run,) = store.runs()
            assert (run.status, run.rounds, run.duration_s) == ("unfinished", 6, 2.5)
            assert store.numbers(spec) == [row[: len(ROUND_COLUMNS)] for row in rows_of(records[:6])]
            assert bits(store.get(spec, unfinished=True)) == bits(make_records(9)[:6])
            with pytest.raises(fc.InputError, match="no finished run"):
                store.get(spec)
        with Store(tmp_path / "results.db") as store:
            found = store.unfinished(spec)
            assert found is not None
            assert (bits(found.records), found.duration_s) == (bits(records[:6]), 2.5)
            assert (found.state.round, found.state.clock_s) == (6, 6.0)
            assert found.state.model.tolist() == [6.0, 7.0, 8.0, 9.0, 10.0]
            store.put(spec, records, 4.0, key)
            assert store.unfinished(spec) is None
            assert len(store.rounds(spec)) == 9
            store.put_unfinished(spec, records[:4], state_after(4), 1.5, key)  # somebody who is late
            assert store.has(spec)
            assert bits(store.get(spec)) == bits(make_records(9))

    def test_two_that_compute_the_same_run_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        spec, records = Spec(), make_records(9)
        key = spec.key()
        with Store(tmp_path / "results.db") as ahead, Store(tmp_path / "results.db") as behind:
            ahead.put_unfinished(spec, records[:6], state_after(6), 2.0, key)
            behind.put_unfinished(spec, records[:2], state_after(2), 1.0, key)
            found = ahead.unfinished(spec)
            assert found is not None
            assert (found.state.round, len(found.records)) == (2, 2)
            ahead.put_unfinished(spec, records[6:8], state_after(8), 3.0, key)
            found = behind.unfinished(spec)
            assert found is not None
            assert (found.state.round, bits(found.records)) == (8, bits(records[:8]))

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE states SET state = x'00'",
            "UPDATE states SET round = 5",
            "DELETE FROM rounds WHERE round = 2",
            "DELETE FROM states",
            "UPDATE rounds SET plan_shares = x'00' WHERE round = 3",
        ],
    )
    def test_what_cannot_go_on_begins_at_the_start(self, damage: str, tmp_path: Path) -> None:
        spec = Spec()
        with Store(tmp_path / "results.db") as store:
            store.put_unfinished(spec, make_records(4), state_after(4), 1.0, spec.key())
            assert store.unfinished(spec) is not None
            store._file.db.execute(damage)
            assert store.unfinished(spec) is None

    def test_a_failed_run_that_is_tried_again_is_unfinished(self, tmp_path: Path) -> None:
        spec = Spec()
        with Store(tmp_path / "results.db") as store:
            store.fail(spec, "out of luck")
            store.put_unfinished(spec, make_records(1), state_after(1), 1.0, spec.key())
            assert [(run.status, run.reason) for run in store.runs()] == [("unfinished", "")]
            store.fail(spec, "again")
            assert [(run.status, run.rounds) for run in store.runs()] == [("failed", 0)]


def test_any_thread_may_use_a_store(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: store.put(Spec(seed=seed), make_records(3, seed)), range(40)))
        found = list(pool.map(lambda seed: bits(store.get(Spec(seed=seed))), range(40)))
    assert found == [bits(make_records(3, seed)) for seed in range(40)]


class TestMeasured:
    def test_what_was_measured_comes_back(self, tmp_path: Path) -> None:
        spec, records = Spec(policy="all", rounds=9), make_records(4)
        measured = make_measured(records)
        with Store(tmp_path / "results.db") as store:
            keys = [
                store.put_measured(spec, records, measured, source=source, duration_s=7.0)
                for source in ("flower", "testbed", "testbed")
            ]
            assert len({*keys, spec.key()}) == 4  # a real run is like no other
            assert not store.has(spec)
            store.put(spec, records)
            assert store.measured(spec) == []
            sources = {run.key: (run.source, run.duration_s, run.spec) for run in store.runs()}
            assert sources[keys[1]] == ("testbed", 7.0, spec)
            assert sources[spec.key()][0] == "simulation"
            for key in keys:
                assert bits(store.get(key)) == bits(records)
                for one, two in zip(store.measured(key), measured, strict=True):
                    for name in ("devices", "predicted_s", "began_s", "measured_s"):
                        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
            assert store.delete([keys[0]]) == 1
            assert store.measured(keys[0]) == []
        with sqlite3.connect(tmp_path / "results.db") as db:
            assert db.execute("SELECT count(*) FROM measured").fetchone() == (8,)
        db.close()

    def test_what_cannot_be(self, tmp_path: Path) -> None:
        records = make_records(2)
        with Store(tmp_path / "results.db") as store:
            with pytest.raises(fc.InputError, match="2 rounds but 1 measurements"):
                store.put_measured(Spec(), records, make_measured(records)[:1], source="flower")
            with pytest.raises(fc.InputError, match="source is 'dream'"):
                store.put_measured(Spec(), records, make_measured(records), source="dream")  # type: ignore[arg-type]
            assert store.runs() == []
        with pytest.raises(fc.InputError, match="began_s has 2 entries for 1 devices"):
            Measured(np.arange(1), np.ones(1), np.ones(2), np.ones(1))


def test_races_are_written_down(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        store.put_race(StoredRace("a", {"spec": {"rounds": 3}}, "queued", 1.0))
        store.put_race(StoredRace("b", {}, "queued", 2.0))
        store.put_race(StoredRace("a", {"spec": {"rounds": 3}}, "done", 1.0))
        assert [(race.id, race.state) for race in store.races()] == [("b", "queued"), ("a", "done")]
        assert store.races()[1].document == {"spec": {"rounds": 3}}
        store.delete_race("b")
        assert [race.id for race in store.races()] == ["a"]


def test_fields_that_differ(tmp_path: Path) -> None:
    specs = [Spec(seed=0), Spec(policy="all", seed=1), parse_spec({"cell": {"radius_m": 3.0}, "rounds": 2}, "x")]
    with Store(tmp_path / "results.db") as store:
        for spec in specs[:2]:
            store.put(spec, [])
        assert differing_fields(run.document for run in store.runs()) == []
        store.put(specs[2], [])
        assert set(differing_fields(run.document for run in store.runs())) == {"budget_s", "rounds", "cell.radius_m"}


def test_profiles_tell_only_runs_apart_that_use_them(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        for policy in ("greedy", "diverse"):
            store.put(Spec(policy=policy, profiles="labels", epsilon=2.0), [])
        by_policy = {run.policy: run for run in store.runs()}
        assert by_policy["diverse"].spec == Spec(policy="diverse", profiles="labels", epsilon=2.0)
        assert by_policy["greedy"].spec == Spec(policy="greedy")  # the same run, and it has the same key
        assert differing_fields(run.document for run in store.runs()) == []
        store.put(Spec(policy="greedy", seed=1), [])
        assert differing_fields(run.document for run in store.runs()) == []
        store.put(Spec(policy="diverse", profiles="updates"), [])
        assert differing_fields(run.document for run in store.runs()) == ["profiles", "epsilon"]


def test_a_large_run_takes_little_room(tmp_path: Path) -> None:
    """1,000 rounds of 20 devices: 700 bytes a round."""
    records = make_records(1000)
    with Store(tmp_path / "results.db") as store:
        for seed in range(5):
            store.put(Spec(seed=seed), records)
    assert (tmp_path / "results.db").stat().st_size < 5 * 1000 * 700


class TestKey:
    def test_it_is_what_it_was(self) -> None:
        """If this changes, nobody's stored runs are found again. When results changed: raise RESULTS_VERSION."""
        assert RESULTS_VERSION == 1
        assert (
            parse_spec({"version": 1, "cell": {"radius_m": 1400}}, "x").key()
            == "76474ad16b6df0e981ed5b010b32d538dd0f68b89f66146b2bd4570285fc548b"
        )

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"policy": "greedy"}, {"policy": "greedy:theta=0.0"}),
            ({"cell": {"radius_m": 1400}}, {}),
            ({"devices": {"seconds_per_sample": [2e-3] * 20}}, {}),
            ({"devices": {"samples_per_second": 4000}}, {"devices": {"samples_per_second": 4000.0}}),
            ({"devices": {"mobility": "waypoint:speed_mps=1"}}, {"devices": {"mobility": "waypoint:speed_mps=1.0..1"}}),
            ({"task": {"partition": "labels:2,balanced"}}, {"task": {"partition": "labels:per_device=2"}}),
            ({"task": {"sizes": "zipf:1"}}, {"task": {"sizes": "zipf:1.0"}}),
            ({"rounds": 3}, {"rounds": 3, "budget_s": math.inf}),
            ({"cell": {"shadowing_db": -0.0}}, {"cell": {"shadowing_db": 0}}),
            ({"grid": {"seed": [1, 2]}}, {}),
            ({"cell": {"channel": "Paper", "rate": "shannon:gap_db=0"}}, {}),
            ({"cell": {"channel": "uma:carrier_hz=35e8"}}, {"cell": {"channel": "UMa:bs_height_m=25"}}),
        ],
    )
    def test_equal_runs_have_one_key(self, one: dict[str, object], other: dict[str, object]) -> None:
        assert parse_spec(one, "one").key() == parse_spec(other, "other").key()

    def test_every_field_counts(self) -> None:
        base = Spec(rounds=7, knowledge="observed")
        changes = {
            "policy": "all", "seed": 1, "budget_s": 9.0, "rounds": 8, "target_accuracy": 0.5, "knowledge": "expected",
            "cell.radius_m": 2.0, "cell.bandwidth_hz": 2.0, "cell.noise_w_per_hz": 2.0, "cell.path_loss_1km_db": 2.0,
            "cell.path_loss_exponent": 2.0, "cell.min_distance_m": 2.0, "cell.shadowing_db": 2.0,
            "cell.shadowing_distance_m": 2.0, "cell.fading": "rayleigh", "cell.rician_k": 2.0, "cell.model_bits": 2,
            "cell.channel": "umi", "cell.rate": "mcs64", "cell.law": "power", "cell.downlink": "unicast",
            "cell.downlink_w_per_hz": 2.0, "cell.downlink_hz": 2.0,
            "devices.count": 2, "devices.seconds_per_sample": 2.0, "devices.samples_per_second": 2.0,
            "slack": 2.0, "cell.csi_error_db": 2.0, "devices.availability": "daynight",
            "devices.power_w_per_hz": 2.0, "devices.mobility": "static", "devices.failure": 0.5,
            "budget_j": 2.0, "devices.kappa": 2.0, "devices.cpu_hz": 2.0, "devices.cycles_per_sample": 2.0,
            "devices.compute_w": 2.0, "devices.battery_j": 2.0, "devices.power_dbm": 20.0,
            "task.data": "fashion-mnist", "task.scaling": "unit", "task.partition": "iid", "task.sizes": "zipf:1",
            "task.engine": "torch", "task.model": "cnn", "task.device": "cuda", "task.hidden": [2],
            "task.learning_rate": 2.0, "task.momentum": 0.5, "task.weight_decay": 2.0, "task.batch_size": 2,
            "task.schedule": "exponential:factor=0.9", "task.precision": "tf32", "task.layout": "HWC",
            "task.epochs": 2, "task.aggregator": "fedadam:weights=samples,late=0.5",
            "task.compression": "sign", "task.evaluate": "auto", "profiles": "labels",
            "epsilon": 2.0, "explore": False,
        }  # fmt: skip
        fields = base.model_dump(exclude={"grid", "version"})
        paths = {f"{a}.{b}" for a, part in fields.items() if isinstance(part, dict) for b in part}
        assert set(changes) == paths | {a for a, part in fields.items() if not isinstance(part, dict)}
        base = base.changed({"policy": "diverse"})
        keys = {base.key(), *(base.changed({path: value}).key() for path, value in changes.items())}
        assert len(keys) == 1 + len(changes)

    def test_profiles_count_where_they_are_used(self) -> None:
        greedy, diverse = Spec(), Spec(policy="diverse")
        changes: tuple[dict[str, Any], ...] = ({"profiles": "labels"}, {"epsilon": 3.0})
        for change in changes:
            assert greedy.changed(change).key() == greedy.key()
            assert diverse.changed(change).key() != diverse.key()
            balanced = greedy.changed({"task.averaging": "balanced"})
            assert balanced.changed(change).key() != balanced.key()

    def test_exploring_counts_where_times_are_observed(self) -> None:
        for knowledge, counts in (("perfect", False), ("expected", False), ("observed", True)):
            spec = Spec(knowledge=knowledge)  # type: ignore[arg-type]
            assert (spec.changed({"explore": False}).key() != spec.key()) is counts
            assert spec.explores is counts
            assert not spec.changed({"explore": False}).explores

    def test_the_results_version_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Spec().key()
        monkeypatch.setattr("fedcell.sim.spec_key.RESULTS_VERSION", RESULTS_VERSION + 1)
        assert Spec().key() != before

    def test_the_torch_engines_version_counts_for_its_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, torch = Spec(), Spec(task=TaskSpec(engine="torch"))
        before = plain.key(), torch.key()
        monkeypatch.setattr("fedcell.sim.spec_key.TORCH_VERSION", TORCH_VERSION + 1)
        assert plain.changed().key() == before[0]  # a new spec: keys are computed once
        assert torch.changed().key() != before[1]
        assert torch.key() == before[1]

    def test_data_count_by_content(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name, content in (("a.npz", b"1"), ("b.npz", b"1"), ("c.npz", b"2")):
            Path(name).write_bytes(content)

        def key(data: str) -> str:
            return parse_spec({"task": {"data": data}}, "x").key()

        assert key("a.npz") == key("b.npz") == key(str(tmp_path / "a.npz"))
        assert key("a.npz") != key("c.npz")
        before = key("a.npz")
        Path("a.npz").write_bytes(b"3")  # as long as before
        os.utime("a.npz", ns=(1, 1))
        assert key("a.npz") != before
        folder = tmp_path / "idx"
        folder.mkdir()
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
            (folder / name).write_bytes(b"x")
        with pytest.raises(fc.InputError, match=r"task.data is .*idx' .No such file"):
            key("idx")
        (folder / "t10k-labels-idx1-ubyte").write_bytes(b"x")
        before = key("idx")
        (folder / "t10k-labels-idx1-ubyte").write_bytes(b"yy")
        assert key("idx") != before
        with pytest.raises(fc.InputError, match=r"task.data is 'missing.npz' .No such file"):
            key("missing.npz")

    def test_a_stored_spec_is_json(self, tmp_path: Path) -> None:
        with Store(tmp_path / "results.db") as store:
            store.put(Spec(rounds=3), [])
            (text,) = store._file.db.execute("SELECT document FROM specs").fetchone()
        assert json.loads(text, parse_constant=pytest.fail)["rounds"] == 3


@pytest.fixture
def of_version_0_2(tmp_path: Path) -> Path:
    """A results file of version 0.2.0: two races, a sweep, a tournament, a run that was stopped, one's own policy."""
    packed = Path(__file__).parents[1] / "fixtures" / "store_0_2.db.gz"
    (tmp_path / "old.db").write_bytes(gzip.decompress(packed.read_bytes()))
    return tmp_path / "old.db"


class TestVersion02:
    def test_its_runs_keep_their_keys_and_their_partition(self, of_version_0_2: Path) -> None:
        with Store(of_version_0_2, mode="read") as store:
            runs = store.runs()
        assert len(runs) == 17
        for run in runs:
            partition = "iid" if run.document["task"]["partition"] == "iid" else "labels:per_device=2,order=numbered"
            assert run.document["task"]["partition"] == run.spec.task.partition == partition
            if run.policy.startswith("mine:"):
                continue  # a module that is not here
            wrong = run.policy == "diverse"  # under mcs64: its reports cost infinite joules
            assert (run.spec.key() == run.key) is not wrong, run.policy

    def test_a_run_that_was_stopped_goes_on_as_it_was(self, of_version_0_2: Path) -> None:
        with Store(of_version_0_2) as store:
            [stopped] = [run for run in store.runs() if run.status == "unfinished"]
            unfinished = store.unfinished(stopped.key)
            assert unfinished is not None
            first = next(fc.simulate(stopped.spec))
            assert first.accuracy == pytest.approx(unfinished.records[0].accuracy, abs=0.01)
            played = Simulation.load(stopped.spec).step(unfinished.state)
        assert played is not None
        assert played[0].round == stopped.rounds + 1

    def test_new_runs_beside_them_have_the_new_partition(self, of_version_0_2: Path) -> None:
        spec = fc.Spec(policy="greedy", rounds=3)
        with Store(of_version_0_2) as store:
            [old] = [run for run in store.runs() if (run.policy, run.seed) == ("greedy", 0)]
            assert spec.key() != old.key == spec.changed({"task.partition": "labels:2,order=numbered"}).key()
            fc.run_sweep(spec, store, workers=1)
            assert {"task.partition"} <= set(differing_fields(run.document for run in store.runs()))
            assert len(store.runs()) == 18


MODELS = "CREATE TABLE models (key TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, model BLOB NOT NULL)"


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON rounds BEGIN UPDATE rounds SET accuracy = 0.99; END", "the trigger 't'"),
        (
            "ALTER TABLE runs RENAME TO runs0; CREATE VIEW runs AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT "
            "x + 1 FROM c) SELECT key, status, reason, finished_unix_s, duration_s, source FROM runs0, c",
            "it lacks a table",
        ),
        (
            "ALTER TABLE specs RENAME TO s0; CREATE VIEW specs AS SELECT key, hex(zeroblob(4e8)) document FROM s0",
            "it lacks",
        ),
        ("CREATE VIRTUAL TABLE v USING fts5(x)", "the table"),
        ("CREATE INDEX i ON rounds (accuracy)", "the index 'i'"),
        ("ALTER TABLE races ADD COLUMN more TEXT", "the table 'races'"),
        (f'{MODELS}; CREATE TRIGGER "m\x1b" AFTER INSERT ON models BEGIN SELECT 1; END', r"the trigger 'm\\x1b'"),
        ("DROP TABLE races", "it lacks a table"),
    ],
)
@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("in_the_log", [False, True])
def test_a_file_with_tables_of_somebody_elses_is_refused(
    statements: str, named: str, mode: Literal["read", "write"], in_the_log: bool, tmp_path: Path
) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.put(Spec(), make_records(2))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        if in_the_log:
            db.execute("PRAGMA wal_autocheckpoint = 0")
        db.executescript(statements)
        if in_the_log:
            assert Path(f"{path}-wal").stat().st_size > 0
            with pytest.raises(fc.InputError, match=named):
                Store(path, mode)
    before = path.read_bytes()
    with pytest.raises(fc.InputError, match=named):
        Store(path, mode)
    assert path.read_bytes() == before


def test_a_file_of_0_2_stays_readable_and_writable(tmp_path: Path) -> None:
    """The tables for models and tournaments are made when they are needed; SQLite's own statistics do no harm."""
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.put(Spec(), make_records(2))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(f"{MODELS_TABLE}; {TOURNAMENTS_TABLE}; ANALYZE; VACUUM;")
    with Store(path) as store:
        store.put(Spec(seed=1), make_records(2), model=np.zeros(3, np.float32))
        assert (len(store.runs()), store.tournaments()) == (2, [])


def test_only_runs_that_were_stored_again_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [Spec(seed=seed) for seed in range(6)]
    with Store(tmp_path / "results.db") as store, Store(tmp_path / "results.db") as other:
        for spec in specs[:4]:
            store.put(spec, make_records(2))
        known = {run.key: run for run in store.runs()}
        assert store.updated([]) == store.runs()
        assert all(run is known[run.key] for run in store.updated(known.values()))
        other.delete([specs[0].key()])
        other.put(specs[1], make_records(3))
        other.fail(specs[4], "a reason")
        monkeypatch.setattr("fedcell.runs.store.time.time", lambda: 7.0)  # a clock that was set back
        other.put(specs[2], make_records(5))
        found = {run.seed: run for run in store.updated(known.values())}
        assert [(seed, run.rounds, run.status) for seed, run in sorted(found.items())] == [
            (1, 3, "done"),
            (2, 5, "done"),
            (3, 2, "done"),
            (4, 0, "failed"),
        ]
        assert [run.key for run in found.values()] == sorted(run.key for run in found.values())
        assert found[3] is known[specs[3].key()]
        monkeypatch.setattr("fedcell.runs.store._FEW", 2)  # so many that all are read
        again = {run.seed: run for run in store.updated(known.values())}
        assert {seed: run.rounds for seed, run in again.items()} == {1: 3, 2: 5, 3: 2, 4: 0}
        assert again[3] is not known[specs[3].key()]


def test_rounds_of_many_runs_are_those_of_each(tmp_path: Path) -> None:
    specs, lengths = [Spec(seed=seed) for seed in range(4)], [3, 0, 5, 1]
    with Store(tmp_path / "results.db") as store:
        for spec, length in zip(specs, lengths, strict=True):
            records = make_records(length, spec.seed)
            store.put(spec, [replace(one, joules=math.nan) for one in records] if spec.seed == 2 else records)
        keys = [spec.key() for spec in reversed(specs)]
        found = store.rounds_of([*keys, keys[0]])
        assert list(found) == keys
        for key, rounds in found.items():
            alone = Rounds.of(store.numbers(key))
            for name in ("clock_s", "round_s", "devices", "accuracy", "spent_j", "epochs", "bits", "sent_bytes"):
                np.testing.assert_array_equal(getattr(rounds, name), getattr(alone, name))
            assert rounds.diverged == alone.diverged
        assert store.rounds_of([]) == {}
        with pytest.raises(fc.InputError, match="has no finished run 00000000"):
            store.rounds_of([keys[0], "0" * 64])


def test_rounds_as_columns_are_those_of_their_records(tmp_path: Path) -> None:
    """Also of a run without some columns, in a file that has them; and as many runs at a time as are asked for."""
    plain, specs = make_records(4), [Spec(seed=seed) for seed in range(4)]
    plain = [replace(one, plan_joules=np.full(one.plan.devices.size, np.nan)) for one in plain]
    decided = [
        replace(one, plan=replace(one.plan, epochs=np.ones(one.plan.devices.size)), loss=math.nan)
        for one in make_records(3, 1)
    ]
    with Store(tmp_path / "results.db") as store:
        for spec, records in zip(specs, (plain, decided, [], plain[:1]), strict=True):
            store.put(spec, records)
        keys = [spec.key() for spec in specs]
        of, tables = zip(*store.tables(keys, 5), strict=True)
        assert [len(one) for one in of] == [7, 1]
        assert [len(one) for one, _ in store.tables(keys, 1)] == [4, 3, 1]
        wanted = [(key, record.to_dict()) for key in keys for record in store.get(key)]
        found = [
            (key, {name: value_at(column, row) for name, column in table.items()})
            for keys_of, table in zip(of, tables, strict=True)
            for row, key in enumerate(keys_of)
        ]
        assert repr(found) == repr(wanted)  # in which NaN is NaN


def value_at(column: Any, row: int) -> Any:
    if isinstance(column, np.ndarray):
        return column[row].item()
    begin = int(column.lengths[:row].sum())
    return None if column.missing[row] else column.values[begin : begin + column.lengths[row]].tolist()


@pytest.mark.parametrize(
    "change", ["clock_s = 'x'", "devices = 2.0", "plan_shares = x'00'", "plan_devices = 'text'", "delivered = 99"]
)
def test_damaged_rounds_are_one_sentence_in_columns_too(change: str, tmp_path: Path) -> None:
    good, bad = Spec(seed=1), Spec(seed=2)
    with Store(tmp_path / "results.db") as store:
        for spec in (good, bad):
            store.put(spec, make_records(3))
        with closing(sqlite3.connect(tmp_path / "results.db")) as db:
            db.execute(f"UPDATE rounds SET {change} WHERE key = ? AND round = 2", (bad.key(),))
            db.commit()
        with pytest.raises(fc.InputError, match=f"the rounds of run {bad.key()[:8]} are damaged; delete the run"):
            list(store.tables([good.key(), bad.key()], 10))
        if change.startswith("clock_s"):
            with pytest.raises(fc.InputError, match=f"the rounds of run {bad.key()[:8]} are damaged; delete the run"):
                store.rounds_of([good.key(), bad.key()])


def test_a_file_without_the_index_gets_it_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store(path) as store:
        store.put(Spec(), make_records(2))
        before = store.runs()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX rounds_told")
        db.commit()

    def plan() -> str:
        with closing(sqlite3.connect(path)) as db:
            return str(db.execute("EXPLAIN QUERY PLAN SELECT max(accuracy) FROM rounds WHERE key = ''").fetchall())

    with Store(path, "read") as store:
        assert store.runs() == before
    assert "COVERING INDEX" not in plan()
    with Store(path) as store:
        assert store.runs() == before
    assert "COVERING INDEX rounds_told" in plan()


def test_a_column_is_added_with_the_first_round_that_has_something_in_it(tmp_path: Path) -> None:
    """So a file without such a round is what version 0.2 reads too; what was stored before is unknown there."""
    path, spec = tmp_path / "results.db", Spec()
    plain = make_records(2)
    half, part = np.array([0.5]), np.array([1e5])
    decided = [replace(one, plan=replace(one.plan, epochs=half.repeat(one.plan.devices.size))) for one in plain]
    both = [replace(one, plan=replace(one.plan, bits=part.repeat(one.plan.devices.size))) for one in decided]

    def columns_in_file() -> set[str]:
        with closing(sqlite3.connect(path)) as db:
            return {name for (name,) in db.execute("SELECT name FROM pragma_table_info('rounds')")}

    with Store(path) as store:
        store.put(spec, plain)
        before = columns_in_file()
        store.put_unfinished(Spec(seed=1), decided[:1], state_after(1), 1.0, Spec(seed=1).key())
        assert columns_in_file() == before | {"plan_epochs"}
    with Store(path) as store:
        store.put(Spec(seed=2), both)
        assert columns_in_file() == before | {"plan_epochs", "plan_bits"}
        for seed, records in ((0, plain), (2, both)):
            assert list(map(encode, store.get(Spec(seed=seed)))) == list(map(encode, records))
        found = store.unfinished(Spec(seed=1))
        assert found is not None
        assert list(map(encode, found.records)) == list(map(encode, decided[:1]))
        assert store.get(spec)[0].plan.epochs is None
        assert len(store.numbers(spec)) == len(store.rounds(spec)) == 2


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        ("heat", False),
        ("plan_heat BLOB", False),
        ("heat REAL", True),
        ("heat DEFAULT 1.0", True),
        ("Heat", True),
        ("heat AS (loss + 1)", True),
        ("heat CHECK (heat > 0)", True),
    ],
)
def test_a_column_of_a_later_version_is_let_be_and_others_are_refused(
    column: str, refused: bool, tmp_path: Path
) -> None:
    path, spec = tmp_path / "results.db", Spec()
    with Store(path) as store:
        store.put(spec, make_records(2))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"ALTER TABLE rounds ADD COLUMN {column}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if refused:
        with pytest.raises(fc.InputError, match="it has the table 'rounds', which no fedcell makes"):
            Store(path)
        return
    with Store(path) as store:
        assert bits(store.get(spec)) == bits(make_records(2))
        store.put(Spec(seed=1), make_records(3))
        assert bits(store.get(Spec(seed=1))) == bits(make_records(3))


@pytest.mark.processes
def test_ctrl_c_ends_whatever_the_file_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    Store(path).close()
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    code = f"""
from fedcell.runs.store import Store
with Store({str(path)!r}, "read") as store, store._read_transaction() as db:
    print("asking", flush=True)
    db.execute({endless!r}).fetchone()
"""
    with Process(*PYTHON, "-c", code) as process:
        process.wait_for_text("asking")
        time.sleep(0.2)
        process.interrupt()
        assert process.finish().stderr.strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_the_file_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    Store(path).close()
    os.mkfifo(f"{path}{ending}")
    with pytest.raises(fc.InputError, match=f"results.db{ending} is not a regular file, and SQLite would use it"):
        Store(path, "read")


@pytest.mark.parametrize(
    ("changes", "rounds", "said"),
    [
        ({"rounds": 9, "devices": {"battery_j": 5.0}, "cell": {"rate": "mcs64"}}, 4, "when no device was in reach"),
        ({"rounds": 9, "devices": {"battery_j": 5.0}, "cell": {"rate": "mcs64"}}, 0, "when no device was in reach"),
        ({"rounds": 9, "devices": {"battery_j": 5.0}, "cell": {"rate": "mcs64"}}, 9, ""),
        ({"rounds": 9, "devices": {"battery_j": 5.0}}, 4, ""),
        ({"rounds": 9, "devices": {"battery_j": 5.0}}, 0, "no round fits"),
        ({"rounds": 9, "cell": {"rate": "mcs64"}}, 4, ""),
        (
            {"rounds": 9, "policy": "diverse", "budget_j": 5.0, "cell": {"rate": "mcs64"}},
            0,
            "reports of devices out of",
        ),
    ],
)
def test_what_version_0_2_had_wrong_is_said_of_its_runs(changes: dict[str, Any], rounds: int, said: str) -> None:
    document = parse_spec(changes, "test").model_dump(mode="json")
    assert said in (found := _doubt(document, old=True, rounds=rounds, infinite=None))
    assert bool(said) == bool(found)
    assert not _doubt(document, old=False, rounds=rounds, infinite=None)


def test_a_file_may_get_columns_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.db"
    with fc.Store(path):
        pass
    asked = store_file.round_columns

    def asked_late(db: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(f"ALTER TABLE rounds ADD COLUMN later_{len(asked(other))}")
        return asked(db)

    monkeypatch.setattr(store_file, "round_columns", asked_late)
    with closing(sqlite3.connect(path)) as db:
        assert store_file._schema_fault(db) == ""
