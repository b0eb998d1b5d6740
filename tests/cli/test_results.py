"""`fedcell results` as its users run it."""

import csv
import gzip
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import fedcell as fc
from fedcell.runs.records import Rounds, read_rounds
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
from harness import FEDCELL, Process, Terminal, run, wait_until
from twins.small import write_small_npz

Call = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store of 12 runs, 4 of which failed."""
    folder = tmp_path_factory.mktemp("filled")
    write_small_npz(folder / "small.npz")
    spec = Spec(rounds=4, task=fc.TaskSpec(data=str(folder / "small.npz"), hidden=[4]))
    grid: dict[str, list[Any]] = {
        "policy": ["greedy", "random:k=3", "random:k=30"],
        "cell.radius_m": [500, 1500],
        "seed": [0, 1],
    }
    with Store(folder / "results.db") as store:
        for one in spec.changed({}, grid).runs():
            try:
                store.put(one, fc.simulate(one, threads=1))
            except fc.InputError as error:
                store.fail(one, str(error))
    return folder


@pytest.fixture
def copied(filled: Path, tmp_path: Path) -> Path:
    (tmp_path / "results.db").write_bytes((filled / "results.db").read_bytes())
    return tmp_path


def finished(folder: Path) -> dict[str, tuple[Spec, list[fc.RoundRecord]]]:
    with Store(folder / "results.db", "read") as store:
        return {run.key: (run.spec, store.get(run.key)) for run in store.runs(status="done")}


def test_the_list_has_each_run_and_what_tells_them_apart(filled: Path, fedcell_here: Call) -> None:
    done = fedcell_here("results", "list", "results.db", cwd=filled)
    assert done.returncode == 0
    title, over, headings, *lines = done.stdout.splitlines()
    assert title.strip() == "results.db: 12 runs"
    assert over.split() == ["cell."]  # in all other fields they are alike
    assert headings.split() == ["key", "policy", "seed", "radius_m", "status", "rounds", "best", "%", "last", "%"]
    assert sum("failed" in line for line in lines) == 4
    for key, (spec, records) in finished(filled).items():
        (cells,) = (line.split() for line in lines if key[:8] in line)
        best, last = max(record.accuracy for record in records), records[-1].accuracy
        where = [spec.policy, str(spec.seed), f"{spec.cell.radius_m:g}", "done", "4"]
        assert cells == [key[:8], *where, f"{100 * best:.2f}", f"{100 * last:.2f}"]
    document = json.loads(fedcell_here("results", "list", "results.db", "--json", cwd=filled).stdout)
    assert {run["key"] for run in document if run["status"] == "done"} == set(finished(filled))
    assert {run["reason"][:7] for run in document if run["status"] == "failed"} == {"k is 30"}
    assert document[0]["spec"]["cell"]["radius_m"] in (500.0, 1500.0)


def test_the_list_is_filtered_and_sorted(filled: Path, fedcell_here: Call) -> None:
    def listed(*options: str) -> list[dict[str, str]]:
        done = fedcell_here("results", "list", "results.db", "--csv", *options, cwd=filled)
        assert done.returncode == 0, done.stderr
        return list(csv.DictReader(done.stdout.splitlines()))

    assert len(listed()) == 12
    assert {run["policy"] for run in listed("--policy", "random")} == {"random:k=3", "random:k=30"}
    assert {run["policy"] for run in listed("--policy", "random:3", "--policy", "greedy")} == {"random:k=3", "greedy"}
    one = listed("--policy", "greedy", "--seed", "1", "--where", "radius_m=500")
    assert len(one) == 1
    assert (one[0]["policy"], one[0]["seed"]) == ("greedy", "1")
    assert [run["status"] for run in listed("--where", "status=failed", "--where", "cell.radius_m=1.5e3")] == [
        "failed"
    ] * 2
    best = [float(run["best_accuracy"]) for run in listed("--sort", "-best_accuracy", "--where", "status=done")]
    assert best == sorted(best, reverse=True)
    assert len(set(best)) > 1
    order = [(run["cell.radius_m"], run["policy"]) for run in listed("--sort", "cell.radius_m", "--sort", "-policy")]
    assert order[0] == ("500.0", "random:k=30")
    assert order[-1] == ("1500.0", "greedy")


def test_no_two_columns_have_one_name(filled: Path, tmp_path: Path, fedcell_here: Call) -> None:
    """Runs with different limits on their rounds: ``rounds`` is what was done."""
    (spec, records), *_ = finished(filled).values()
    with Store(tmp_path / "results.db") as store:
        for limit in (4, 9):
            store.put(spec.changed({"rounds": limit}), records)
    exported = ["results", "export", "results.db", "--csv", ".", "--parquet", "rounds.parquet"]
    assert fedcell_here(*exported, cwd=tmp_path).returncode == 0
    listed = fedcell_here("results", "list", "results.db", "--csv", cwd=tmp_path).stdout
    for text in (listed, (tmp_path / "runs.csv").read_text()):
        names, *rows = csv.reader(text.splitlines())
        assert len(set(names)) == len(names)
        runs = [dict(zip(names, row, strict=True)) for row in rows]
        assert {(run["rounds"], run["rounds_limit"]) for run in runs} == {("4", "4"), ("4", "9")}
    tables = [(tmp_path / "rounds.csv").read_text().splitlines()[0].split(",")]
    tables.append(pytest.importorskip("pyarrow.parquet").read_schema(tmp_path / "rounds.parquet").names)
    for names in tables:
        assert len(set(names)) == len(names)
        assert "rounds_limit" in names
    shown = fedcell_here("results", "list", "results.db", "--where", "rounds_limit=9", cwd=tmp_path).stdout
    assert shown.splitlines()[0].startswith("results.db: 1 of 2 runs")
    assert fedcell_here("results", "list", "results.db", cwd=tmp_path).stdout.splitlines()[1].split()[3:5] == [
        "rounds_limit",
        "rounds",
    ]


@pytest.mark.processes
def test_the_list_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    grid: dict[str, list[Any]] = {
        "policy": ["proportional_fair:max_devices=9,k=4,relative=true"],
        "cell.radius_m": [500, 1500],
        "devices.mobility": ["static", "waypoint:speed_mps=0.5..2,pause_s=3"],
        "cell.fading": ["none", "rayleigh"],
    }
    with Store(tmp_path / "results.db") as store:
        for one in Spec(rounds=1).changed({}, grid).runs():
            store.fail(one, "no")
        keys = [run.key[:8] for run in store.runs()]
    env = os.environ | {"COLUMNS": "80", "TERM": "xterm"}

    def shown(*options: str) -> list[str]:
        command = [*FEDCELL, "results", "list", "results.db", *options]
        with Terminal() as terminal, Process(*command, cwd=tmp_path, env=env, stdout=terminal.line) as process:
            assert process.finish().returncode == 0
            wait_until(lambda: keys[-1] in terminal.shown and terminal.shown.endswith("\n"), "the table")
            return re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown).splitlines()

    lines = shown()
    assert max(map(len, lines)) <= 80
    for key in keys:
        assert any(line.startswith(key) for line in lines)
    assert "They differ also in cell.fading, devices.mobility; --wide, --csv and --json show it." in " ".join(
        " ".join(lines).split()
    )
    assert "…" not in "".join(lines)
    wide = shown("--wide")
    assert sum("proportional_fair:max_devices=9,k=4,relative=True" in line for line in wide) == 8
    assert sum("waypoint:speed_mps=0.5..2,pause_s=3" in line for line in wide) == 4


def test_one_run_is_shown_by_the_first_digits_of_its_key(filled: Path, fedcell_here: Call) -> None:
    key, (spec, records) = next(iter(finished(filled).items()))
    done = fedcell_here("results", "show", "results.db", key[:10], cwd=filled)
    assert done.returncode == 0
    for words in (key, f'policy = "{spec.policy}"', f"cell.radius_m = {spec.cell.radius_m}", f"{records[-1].loss:.4f}"):
        assert words in done.stdout
    document = json.loads(fedcell_here("results", "show", "results.db", key[:10], "--json", cwd=filled).stdout)
    assert [row["loss"] for row in document["records"]] == [record.loss for record in records]
    assert document["records"][1]["plan_shares"] == records[1].plan.shares.tolist()
    with Store(filled / "results.db", "read") as store:
        failed = store.runs(status="failed")[0]
    assert "reason: k is 30" in fedcell_here("results", "show", "results.db", failed.key, cwd=filled).stdout


def test_csv_has_every_round(copied: Path, fedcell_here: Call) -> None:
    folder = copied / "out"
    folder.mkdir()
    assert fedcell_here("results", "export", "results.db", "--csv", "out", cwd=copied).returncode == 0
    assert fedcell_here("results", "export", "results.db", "--csv", "all.csv", cwd=copied).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["rounds.csv", "runs.csv"]
    assert (folder / "rounds.csv").read_bytes() == (copied / "all.csv").read_bytes()
    with (folder / "rounds.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    expected = [
        {
            "key": key,
            "policy": spec.policy,
            "seed": str(spec.seed),
            "cell.radius_m": str(spec.cell.radius_m),
            "round": str(r.round),
            "clock_s": repr(r.clock_s),
            "round_s": repr(r.round_s),
            "planned_s": repr(r.plan.round_s),
            "devices": str(r.plan.devices.size),
            "delivered": str(r.delivered.size),
            "accuracy": repr(r.accuracy),
            "loss": repr(r.loss),
            "joules": repr(r.joules),
            **{name: repr(getattr(r, name)) for name in ("epochs", "bits", "sent_bytes", "evaluated")},
        }
        for key, (spec, records) in finished(copied).items()
        for r in records
    ]
    assert len(expected) == 32
    assert lines == expected
    with (folder / "runs.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    assert [run["status"] for run in runs].count("failed") == 4
    assert {run["cell.radius_m"] for run in runs} == {"500.0", "1500.0"}


def test_parquet_has_every_round_with_its_plan(copied: Path, fedcell_here: Call) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert fedcell_here("results", "export", "results.db", "--parquet", "all.parquet", cwd=copied).returncode == 0
    table = parquet.read_table(copied / "all.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["seed"], types["cell.radius_m"], types["loss"], types["round"]) == (
        "int64",
        "double",
        "double",
        "int64",
    )
    found = finished(copied)
    rows = table.to_pylist()
    assert len(rows) == 32
    for row in rows:
        spec, records = found[row["key"]]
        record = records[row["round"] - 1]
        assert (row["policy"], row["seed"], row["cell.radius_m"]) == (spec.policy, spec.seed, spec.cell.radius_m)
        assert (row["clock_s"], row["accuracy"], row["loss"]) == (record.clock_s, record.accuracy, record.loss)
        assert row["plan_devices"] == record.plan.devices.tolist()
        assert row["plan_shares"] == record.plan.shares.tolist()
        assert row["plan_joules"] == record.plan_joules.tolist()
        assert row["plan_delivered"] == record.delivered.tolist()
    assert sorted(path.name for path in copied.iterdir()) == ["all.parquet", "results.db"]


def test_columns_of_mixed_kinds_are_exported_too(tmp_path: Path, fedcell_here: Call) -> None:
    """A list beside a number, a seed beyond 64 bits, a budget that some runs lack, a store of failures only."""
    parquet = pytest.importorskip("pyarrow.parquet")
    specs = [Spec(rounds=1), Spec(seed=2**70), Spec(devices={"count": 2, "seconds_per_sample": [1.0, 2.0]})]  # type: ignore[arg-type]
    with Store(tmp_path / "results.db") as store:
        store.fail(specs[0], "no")
        assert fedcell_here("results", "export", "results.db", "--parquet", "x.parquet", cwd=tmp_path).returncode == 0
        assert parquet.read_table(tmp_path / "x.parquet").num_rows == 0
        for spec in specs:
            store.put(spec, fc.simulate(Spec(rounds=1, policy="random:k=1"), threads=1))
    done = fedcell_here("results", "export", "results.db", "--parquet", "x.parquet", "--csv", "x.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert {row["seed"] for row in rows} == {"0", str(2**70)}
    assert {row["devices.seconds_per_sample"] for row in rows} == {"0.002", "[1.0, 2.0]"}
    assert {row["budget_s"] for row in rows} == {None, 450.0}
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 4
    assert fedcell_here("results", "list", "results.db", cwd=tmp_path).returncode == 0


@pytest.mark.processes
def test_without_pyarrow_a_sentence_names_the_extra(copied: Path) -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from fedcell.cli import main; main()"
    arguments = ["results", "export", "results.db", "--parquet", "a.parquet", "--csv", "a.csv"]
    done = run(sys.executable, "-c", code, *arguments, cwd=copied)
    assert done.returncode == 2
    assert "pip install 'fedcell[parquet]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in copied.iterdir()] == ["results.db"]


def test_delete_by_key_failure_and_policy(copied: Path, fedcell_here: Call) -> None:
    def left() -> int:
        with Store(copied / "results.db", "read") as store:
            return len(store.runs())

    refused = fedcell_here("results", "delete", "results.db", "--failed", cwd=copied)
    assert refused.returncode == 2
    assert "4 runs would be deleted from results.db; add --yes" in refused.stderr
    assert left() == 12
    assert fedcell_here("results", "delete", "results.db", "--failed", "--yes", cwd=copied).stdout == "4 runs deleted\n"
    one, two, *_ = finished(copied)
    done = fedcell_here("results", "delete", "results.db", one[:9], two, one, "--yes", cwd=copied)
    assert done.stdout == "2 runs deleted\n"
    assert left() == 6
    assert fedcell_here("results", "delete", "results.db", "--policy", "greedy:0", "--yes", cwd=copied).returncode == 0
    assert {spec.policy for spec, _ in finished(copied).values()} <= {"random:k=3"}


@pytest.mark.processes
@pytest.mark.parametrize(("answer", "status", "kept"), [("n\n", 1, 12), ("y\n", 0, 8)])
def test_a_terminal_is_asked_before_deletion(answer: str, status: int, kept: int, copied: Path) -> None:
    command = [*FEDCELL, "results", "delete", "results.db", "--failed"]
    with Terminal() as terminal, Process(*command, cwd=copied, stdin=terminal.line) as process:
        terminal.type(answer)
        done = process.finish()
    assert "Delete 4 runs from results.db?" in done.stdout
    assert done.returncode == status
    with Store(copied / "results.db", "read") as store:
        assert len(store.runs()) == kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["list", "missing.db"],
            "there is no results file missing.db; fedcell race --store or",
        ),
        (["list", "results.db", "--where", "radius_m"], "--where is 'radius_m'; write FIELD=VALUE"),
        (["list", "results.db", "--where", "radus_m=3"], "--where names 'radus_m', which no run has; did you mean"),
        (["list", "results.db", "--sort", "best"], "--sort names 'best', which no run has; did you mean"),
        (["list", "results.db", "--seed", "9"], "no run of results.db matches; it has 12 runs, of greedy, "),
        (["list", "results.db", "--csv", "--json"], "--json and --csv were both given; choose one"),
        (["list", "notes.txt"], "notes.txt is not a fedcell results file"),
        (["show", "results.db", "00000000"], "results.db has no run '00000000'"),
        (["show", "results.db", ""], "'' begins the keys of 12 runs"),
        (["show", "results.db", "zz"], "'zz' is not the key of a run"),
        (["export", "results.db"], "nothing to write; give --csv"),
        (
            ["export", "results.db", "--csv", "results.db"],
            "results.db is the store itself; give another file",
        ),
        (
            ["export", "results.db", "--csv", "x.csv", "--parquet", "no/x"],
            "no is not a directory; create it first",
        ),
        (["export", "results.db", "--csv", "no/x.csv"], "no is not a directory; create it first"),
        (["export", "results.db", "--parquet", "."], "cannot write .: it is a directory"),
        (["delete", "results.db"], "no runs are given; give their keys, or --failed, or --policy"),
        (["delete", "results.db", "ab", "--failed"], "no runs are given"),
        (
            ["delete", "results.db", "--policy", "gredy", "--yes"],
            "has no run of policy 'gredy'; its policies: gr",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_changed(
    arguments: list[str],
    words: str,
    copied: Path,
    fedcell_here: Call,
) -> None:
    (copied / "notes.txt").write_text("not a store")
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    done = fedcell_here("results", *arguments, cwd=copied)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedcell: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_an_export_goes_through_links_and_standard_output(copied: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from fedcell.cli import app

    def export(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["results", "export", str(copied / "results.db"), *map(str, arguments)])
        return done.exit_code, str(done.exception or "")

    (copied / "target.csv").write_text("old")
    (copied / "link.csv").symlink_to("target.csv")
    assert export("--csv", copied / "link.csv") == (0, "")
    whole = (copied / "target.csv").read_text()
    assert (copied / "link.csv").is_symlink()
    assert len(whole.splitlines()) > 2
    for name in ("-", "/dev/stdout"):
        assert export("--csv", name) == (0, "")
        assert capfd.readouterr().out == whole
    assert Path("/dev/stdout").is_symlink()
    assert export("--parquet", "/dev/null") == (0, "")
    assert Path("/dev/null").is_char_device()
    status, reason = export("--csv", "-", "--parquet", "-")
    assert (status, reason) == (1, "--csv and --parquet are both -; give each its own file")


# --- final models --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store of 4 runs, 3 of them with their models."""
    folder = tmp_path_factory.mktemp("models")
    write_small_npz(folder / "small.npz")
    spec = Spec(rounds=2, task=fc.TaskSpec(data=str(folder / "small.npz"), hidden=[4]))
    grid: dict[str, list[Any]] = {"policy": ["all", "random:k=3"], "seed": [0, 1]}
    *some, last = spec.changed({}, grid).runs()
    with Store(folder / "results.db") as store:
        list(fc.Runner(some, store=store, on="threads", models=True))
        list(fc.Runner([last], store=store, on="threads"))
    return folder


def test_show_has_the_classes_and_saves_the_model(with_models: Path, tmp_path: Path, fedcell_here: Call) -> None:
    with Store(with_models / "results.db", "read") as store:
        run = next(run for run in store.runs() if (run.policy, run.seed) == ("all", 1))
    path = tmp_path / "m.safetensors"
    show = ["results", "show", with_models / "results.db"]
    done = fedcell_here(*show, run.key[:10], "--per-class", "--save-model", path)
    assert done.returncode == 0, done.stderr
    score = fc.load_model(path).evaluate()
    assert score.accuracy == run.last_accuracy
    for label, accuracy in enumerate(score.class_accuracy):
        assert re.search(rf"(?m)^ +{label} +{100 * accuracy:.2f} *$", done.stdout)
    document = json.loads(fedcell_here(*show, run.key, "--per-class", "--json").stdout)
    assert document["class_accuracy"] == score.class_accuracy.tolist()
    assert "class_accuracy" not in json.loads(fedcell_here(*show, run.key, "--json").stdout)


def test_a_run_without_a_model_says_how_to_get_one(with_models: Path, tmp_path: Path, fedcell_here: Call) -> None:
    with Store(with_models / "results.db", "read") as store:
        run = next(run for run in store.runs() if (run.policy, run.seed) == ("random:k=3", 1))
    for option in (["--per-class"], ["--save-model", tmp_path / "m.npz"]):
        done = fedcell_here("results", "show", with_models / "results.db", run.key, *option)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"has no model of run {run.key[:8]}; run it again with fedcell race --save-model" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = fedcell_here("results", "show", with_models / "results.db", run.key, "--save-model", tmp_path / "m.pt")
    assert "give a name that ends with .safetensors or .npz" in done.stderr


def test_export_writes_the_models_that_were_kept(with_models: Path, tmp_path: Path, fedcell_here: Call) -> None:
    done = fedcell_here("results", "export", with_models / "results.db", "--models", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    names = {"all-seed0.safetensors", "all-seed1.safetensors", "random-k=3-seed0.safetensors"}
    assert {path.name for path in (tmp_path / "m").iterdir()} == names
    assert "wrote 3 models such as" in done.stderr
    assert "1 run is stored without a model" in done.stderr
    for path in (tmp_path / "m").iterdir():
        model = fc.load_model(path)
        *_, last = fc.simulate(model.spec)
        assert model.evaluate().accuracy == last.accuracy


def test_a_store_without_models_has_none_to_export(filled: Path, tmp_path: Path, fedcell_here: Call) -> None:
    done = fedcell_here("results", "export", filled / "results.db", "--models", tmp_path / "m")
    assert done.returncode == 2
    assert "has no models; they are kept by" in done.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.processes
def test_a_sweep_keeps_models_if_asked(tmp_path: Path, fedcell_here: Call) -> None:
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "s.toml").write_text('rounds = 2\n[task]\ndata = "small.npz"\nhidden = [4]\n[grid]\nseed = [0, 1]\n')
    fedcell_here("sweep", "s.toml", "--store", "r.db", "-q", cwd=tmp_path)
    done = fedcell_here("sweep", "s.toml", "--store", "r.db", "--keep-models", cwd=tmp_path)
    assert "2 runs are stored without a model, and computed again for it" in done.stderr
    assert done.stdout == "2 runs done, 0 skipped (already stored), 0 failed\n"
    with Store(tmp_path / "r.db", "read") as store:
        assert all(store.model(run.key) is not None for run in store.runs())


def test_runs_that_version_0_2_had_wrong_are_marked(tmp_path: Path, fedcell_here: Call) -> None:
    """In a file that version 0.2.0 wrote; and where energy was limited, as if it had written the run."""
    packed = Path(__file__).parents[1] / "fixtures" / "store_0_2.db.gz"
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    base = Spec(rounds=1, cell=fc.Cell(rate=fc.Mcs64()), task=fc.TaskSpec(hidden=[4]))
    limited = base.changed({"devices.battery_j": 20.0, "policy": "diverse"})
    with Store(path) as store:
        for spec in (limited, limited.changed({"policy": "greedy"}), limited.changed({"seed": 7}), base):
            store.put(spec, fc.simulate(spec, threads=1))
    file = sqlite3.connect(path)
    with file:
        for spec in (limited, limited.changed({"policy": "greedy"})):
            (text,) = file.execute("SELECT document FROM specs WHERE key = ?", (spec.key(),)).fetchone()
            old = {name: value for name, value in json.loads(text).items() if name != "version"}
            file.execute("UPDATE specs SET document = ? WHERE key = ?", (json.dumps(old), spec.key()))
    file.close()
    told = json.loads(fedcell_here("results", "list", "old.db", "--json", cwd=tmp_path).stdout)
    doubts = {run["key"]: run["doubt"] for run in told}
    infinite = "joules of round 1 infinite, for devices out of reach sent reports in version 0.2: run it again"
    battery = "in version 0.2 reports of devices out of reach used up the energy of budget or batteries: run it again"
    no_round = "no round fits into the budget, which version 0.2 counted as an accuracy of 0 %"
    assert {key[:8] for key, doubt in doubts.items() if doubt.startswith(infinite)} == {"05ab5058", "e5df0d54"}
    assert {key[:8] for key, doubt in doubts.items() if doubt == no_round} == {"d08e6f23", "c4d8e231"}
    assert [key for key, doubt in doubts.items() if doubt.startswith(battery)] == [limited.key()]
    assert sum(map(bool, doubts.values())) == 5
    shown = fedcell_here("results", "list", "old.db", cwd=tmp_path).stdout
    marks = dict(re.findall("^([a-c]): (.+)$", shown, re.MULTILINE))
    assert sorted(marks.values()) == sorted(set(filter(None, doubts.values())))
    (line,) = [line for line in shown.splitlines() if line.startswith("d08e6f23")]
    assert marks[line.split()[-4]] == no_round
    rows = list(csv.DictReader(fedcell_here("results", "list", "old.db", "--csv", cwd=tmp_path).stdout.splitlines()))
    assert {row["key"]: row["doubt"] for row in rows} == doubts


def test_where_knows_the_aggregator_as_version_0_2_spelled_it(tmp_path: Path, fedcell_here: Call) -> None:
    with Store(tmp_path / "r.db") as store:
        for seed, aggregator in enumerate(("mean", "balanced", "fedadam:weights=balanced,late=0.5")):
            store.put(Spec(rounds=1, seed=seed, task=fc.TaskSpec(hidden=[4], aggregator=aggregator)), [])
    for text, seeds in (
        ("task.averaging=balanced", {1, 2}),
        ("averaging=plain", {0}),
        ("task.server=adam", {2}),
        ("late_weight=0.5", {2}),
        ("aggregator=balanced", {1}),
    ):
        done = fedcell_here("results", "list", "r.db", "--where", text, "--json", cwd=tmp_path)
        assert {run["spec"]["seed"] for run in json.loads(done.stdout)} == seeds, text


def test_a_run_without_a_round_has_no_accuracy(tmp_path: Path, fedcell_here: Call) -> None:
    packed = Path(__file__).parents[1] / "fixtures" / "store_0_2.db.gz"
    (tmp_path / "old.db").write_bytes(gzip.decompress(packed.read_bytes()))
    assert fedcell_here("results", "export", "old.db", "--csv", ".", cwd=tmp_path).returncode == 0
    listed = fedcell_here("results", "list", "old.db", "--csv", "--sort", "best_accuracy", cwd=tmp_path).stdout
    for text in (listed, (tmp_path / "runs.csv").read_text()):
        rows = list(csv.DictReader(text.splitlines()))
        empty = [row for row in rows if row["rounds"] == "0"]
        assert [(row["best_accuracy"], row["last_accuracy"]) for row in empty] == [("", "")] * 2
        assert {"no round fits into the budget" in row["doubt"] for row in empty} == {True}
    assert [row["rounds"] for row in csv.DictReader(listed.splitlines())][-2:] == ["0", "0"]
    shown = json.loads(fedcell_here("results", "show", "old.db", empty[0]["key"], "--json", cwd=tmp_path).stdout)
    assert (shown["best_accuracy"], shown["last_accuracy"]) == (None, None)


def test_rounds_are_exported_without_their_plans(copied: Path, fedcell_here: Call) -> None:
    done = fedcell_here("results", "export", "results.db", "--rounds", "rounds.npz", cwd=copied)
    assert (done.returncode, done.stderr) == (0, "wrote rounds.npz\n")
    found = read_rounds(copied / "rounds.npz")
    expected = {key: Rounds.of_records(records) for key, (_, records) in finished(copied).items()}
    assert found.keys() == expected.keys()  # those that failed have none
    assert all(found[key].accuracy.tolist() == run.accuracy.tolist() for key, run in expected.items())
    assert all(found[key].clock_s.tolist() == run.clock_s.tolist() for key, run in expected.items())
    twice = fedcell_here("results", "export", "results.db", "--rounds", "a", "--csv", "a", cwd=copied)
    assert (twice.returncode, "--csv and --rounds are both a; give each its own file" in twice.stderr) == (2, True)
    over = fedcell_here("results", "export", "results.db", "--rounds", "results.db", cwd=copied)
    assert (over.returncode, "results.db is the store itself" in over.stderr) == (2, True)
