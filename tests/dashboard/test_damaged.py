"""Results files that somebody else wrote, or that were moved: everything that can be shown is, and nothing is run."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from harness import TINY, Served, fedcell, serve, wait_until
from twins.small import write_small_npz

pytestmark = pytest.mark.processes
Call = Callable[..., CompletedProcess[str]]

OWN = """
import dataclasses
import numpy as np
import fedcell as fc

open("IMPORTED", "a").close()

@dataclasses.dataclass(frozen=True)
class Own(fc.Policy):
    k: int = 1

    def choose(self, view, rng):
        return np.arange(self.k)
"""
SMALL = ("--rounds", "1", "--seeds", "1", "--devices", "3", "--plot", "none", "-q")


def changed(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        for statement in statements:
            db.execute(statement)


def states(served: Served) -> dict[str, Any]:
    return {race["id"]: race for race in served.get("/api/races")["races"]}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a policy of one's own, its data, and the results of a race with them."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN)
    write_small_npz(folder / "d.npz")
    done = fedcell(
        "race", *SMALL, "--data", "d.npz", "--policy", "mine:Own:k=2", "--policy", "all", "--store", "a.db", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    (folder / "IMPORTED").unlink()
    return folder


@pytest.mark.parametrize("keyless", [False, True], ids=["0.2.1", "0.2.0"])
@pytest.mark.parametrize("change", ["moved", "gone", "another comment"])
def test_a_race_with_code_and_data_of_ones_own_is_shown_wherever_it_is(
    own: Path, tmp_path: Path, change: str, keyless: bool
) -> None:
    if keyless:
        changed(own / "a.db", "UPDATE races SET document = json_remove(document, '$.keys')")
    if change == "gone":
        (own / "mine.py").unlink()
        (own / "d.npz").unlink()
    if change == "another comment":
        (own / "mine.py").write_text(OWN + "# a comment\n")
    with serve(own / "a.db", cwd=tmp_path if change == "moved" else own) as served:
        (race,) = states(served).values()
        assert (race["state"], race["reason"]) == ("done", "")
        assert [one["line"] for one in race["policies"]] == ["mine:Own:k=2", "all"]
        assert [(run["state"], run["policy"]) for run in race["runs"]] == [("done", "mine:Own:k=2"), ("done", "all")]
        curves = served.get(f"/api/races/{race['id']}/curves")
        assert [line["seeds_done"] for line in curves["policies"]] == [1, 1]
        assert {run["key"] for run in served.get("/api/runs")["runs"]} == {run["key"] for run in race["runs"]}
        refused = served.http.post(f"/api/races/{race['id']}/rerun")
        assert (refused.status_code, "fedcell serve --allow-import" in refused.json()["detail"]) == (409, True)
    assert not (own / "IMPORTED").exists()


def test_a_race_with_code_of_ones_own_goes_on_where_importing_was_asked_for(own: Path) -> None:
    (own / "mine.py").write_text(OWN + "# a comment\n")
    with serve(own / "a.db", "--workers", "1", "--allow-import", cwd=own) as served:
        (race,) = states(served).values()
        served.post(f"/api/races/{race['id']}/rerun")
        done = served.wait(race["id"], "done", "failed")
        assert (done["state"], done["reason"]) == ("done", "")
        assert done["runs"][0]["key"] != race["runs"][0]["key"]
        assert done["runs"][1]["key"] == race["runs"][1]["key"]
    assert (own / "IMPORTED").exists()


def test_one_damaged_race_hides_no_other(tmp_path: Path, fedcell_here: Call) -> None:
    store = tmp_path / "results.db"
    done = fedcell_here("race", *SMALL, "--policy", "all", "--store", store)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(store)) as db, db:
        (good,) = db.execute("SELECT id FROM races").fetchone()
        document, owner = db.execute("SELECT document, owner FROM races").fetchone()
        whole = json.loads(document)

        def put(id: object, document: object = document, created: object = 1.0, owner: object = owner) -> None:
            db.execute("INSERT INTO races VALUES (?, ?, 'done', ?, 1.0, ?)", (id, document, created, owner))

        put("a1", "{}")
        put("a2", "[]")
        put("a3", '{"a":' + "[" * 200_000)
        put("a4", json.dumps(whole | {"target": "x"}))
        put("a5", json.dumps(whole | {"policies": None}))
        put("a6", json.dumps(whole | {"seeds": list(range(400_000)), "keys": None}))
        put("a7", json.dumps(whole | {"keys": ["x"]}))
        put("a8", json.dumps(whole | {"policies": ["evil:X"], "spec": whole["spec"] | {"nonsense": 1}}))
        put("a9", created="abc")
        put("aa", json.dumps(whole | {"note": "n" * 50_000_000}))
        put(b"\xff")
        host = owner.rpartition(" ")[0]
        fine = {"b1": f"{host} abc", "b2": f"{host} {'9' * 30}"}
        for id, other in fine.items():
            put(id, owner=other)
        put("ab", owner=b"\x00\xff")
    with serve(store) as served:
        found = states(served)
        assert len(found) == 15
        damaged = {id: race["reason"] for id, race in found.items() if race["state"] == "damaged"}
        assert set(damaged) >= {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "aa", "ab"}
        assert len(damaged) == 12
        assert all(damaged.values())
        assert {id: found[id]["state"] for id in (good, *fine)} == dict.fromkeys((good, *fine), "done")
        for path in ("curves", "command", "data.csv", "figure.svg", "page.html", "events"):
            assert served.http.get(f"/api/races/a1/{path}").status_code == 409, path
        for action in ("resume", "rerun", "pause"):
            assert served.http.post(f"/api/races/a1/{action}").status_code == 409, action
        assert served.http.delete("/api/races/a1").status_code == 204
        assert "a1" not in states(served)
        # What comes later is looked at too, good and bad.
        changed(store, "INSERT INTO races VALUES ('c1', '{}', 'done', 9.0, 9.0, '')")
        with closing(sqlite3.connect(store)) as db, db:
            db.execute("INSERT INTO races VALUES ('c2', ?, 'done', 9.0, 9.0, '')", (document,))
        wait_until(lambda: {"c1", "c2"} <= set(states(served)), "the races that came later")
        later = states(served)
        assert (later["c1"]["state"], later["c2"]["state"]) == ("damaged", "done")
        # A race that is written anew is whole again.
        with closing(sqlite3.connect(store)) as db, db:
            db.execute("UPDATE races SET document = ? WHERE id = 'c1'", (document,))
        wait_until(lambda: states(served)["c1"]["state"] == "done", "the race that was written anew")


def test_a_thousand_races_are_soon_there(tmp_path: Path, fedcell_here: Call) -> None:
    """With the keys nothing is hashed: what counts is that races of code nobody has are there at all."""
    store = tmp_path / "results.db"
    assert fedcell_here("race", *SMALL, "--policy", "all", "--store", store).returncode == 0
    with closing(sqlite3.connect(store)) as db, db:
        whole = json.loads(db.execute("SELECT document FROM races").fetchone()[0])
        keys = [f"{number:064x}" for number in range(1000)]
        document = json.dumps(whole | {"policies": ["evil:X"], "seeds": list(range(1000)), "keys": keys})
        db.executemany(
            "INSERT INTO races VALUES (?, ?, 'done', 1.0, 1.0, '')", [(f"{i:x}", document) for i in range(1, 11)]
        )
    with serve(store) as served:
        assert [race["state"] for race in states(served).values()] == ["done"] * 11


RUNS: list[str] = [
    "UPDATE specs SET document = json_set(document, '$.seed', 1e400)",
    "UPDATE specs SET document = replace(document, '\"seed\": 0', '\"seed\": Infinity')",
    "UPDATE specs SET document = json_set(document, '$.policy', char(55296))",
    'UPDATE specs SET document = replace(document, \'"policy": "all"\', \'"policy": "\\ud800"\')',
    'UPDATE specs SET document = \'{"policy": "all", "seed": 0, "a":\' || printf(\'%.*c\', 100000, \'[\')',
    'UPDATE specs SET document = \'{"policy": "all", "seed": 0, "a": \' || '
    "replace(printf('%.*c', 900, 'x'), 'x', '[') || replace(printf('%.*c', 900, 'x'), 'x', ']') || '}'",
    "UPDATE specs SET document = json_set(document, '$.policy', printf('%.*c', 30000000, 'x'))",
    "UPDATE specs SET document = json_set(document, '$.policy', char(27) || ']0;pwn' || char(7))",
    "UPDATE specs SET document = json_set(document, '$.task.data', char(27) || '[2J')",
    "UPDATE specs SET document = CAST(x'7b22ff' AS TEXT)",
    "UPDATE runs SET reason = x'ff00'",
    "UPDATE runs SET finished_unix_s = 'soon'",
    "UPDATE runs SET finished_unix_s = 1e999",
    "UPDATE runs SET duration_s = 'x'",
    "UPDATE runs SET source = 'elsewhere'",
    "UPDATE rounds SET accuracy = 'high'",
    "UPDATE rounds SET accuracy = x'ff'",
]


@pytest.mark.parametrize("statement", RUNS)
def test_one_damaged_run_hides_no_other(
    statement: str, tmp_path: Path, stored: Callable[[Path], str], fedcell_here: Call
) -> None:
    store, policy = tmp_path / "results.db", "random:k=1"
    good = stored(store)
    where = f" WHERE key <> '{good}'"
    changed(store, statement + where)
    listed = fedcell_here("results", "list", store)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert ("damaged" in listed.stdout, policy in listed.stdout, "\x1b" in listed.stdout) == (True, True, False)
    (told,) = [run for run in json.loads(fedcell_here("results", "list", store, "--json").stdout) if run["key"] != good]
    assert (told["status"], told["rounds"], bool(told["reason"])) == ("damaged", 0, True)
    shown = fedcell_here("results", "show", store, told["key"])
    assert (shown.returncode, "reason: damaged in the file" in shown.stdout, "\x1b" in shown.stdout) == (0, True, False)
    for options in (["--csv", "-"], ["--parquet", str(tmp_path / "x.parquet")]):
        done = fedcell_here("results", "export", store, *options)
        assert done.returncode == 0, done.stderr
    with serve(store) as served:
        runs = {run["key"]: run for run in served.get("/api/runs")["runs"]}
        assert {key: run["status"] for key, run in runs.items()} == {good: "done", told["key"]: "damaged"}
        assert served.http.get(f"/api/runs/{good}").status_code == 200
        assert served.http.get(f"/api/results/compare?keys={good}").status_code == 200
        for path in (f"runs/{told['key']}", f"runs/{told['key']}/field", f"results/compare?keys={told['key']}"):
            answer = served.http.get(f"/api/{path}")
            assert (answer.status_code, "damaged in the file" in answer.json()["detail"]) == (422, True), path
        assert len(served.get("/api/races")["races"]) == 1
    assert fedcell_here("results", "delete", store, told["key"], "--yes").returncode == 0
    assert fedcell_here("results", "list", store, "--json").stdout.count('"key"') == 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Copies a results file with two runs to a place, and gives the key of the one that shall stay whole."""
    made = tmp_path_factory.mktemp("made") / "results.db"
    done = fedcell("race", *SMALL, "--policy", "all", "--policy", "random:k=1", "--store", made)
    assert done.returncode == 0, done.stderr
    runs = json.loads(fedcell("results", "list", made, "--json").stdout)

    def copy(place: Path) -> str:
        place.write_bytes(made.read_bytes())
        return next(str(run["key"]) for run in runs if run["spec"]["policy"] != "all")

    return copy


def test_a_key_is_64_hexadecimal_digits(tmp_path: Path, stored: Callable[[Path], str], fedcell_here: Call) -> None:
    """Keys name files: two models of one policy and seed go to {policy}-seed{seed}-{key}."""
    store = tmp_path / "results.db"
    good = stored(store)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("CREATE TABLE models (key TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, model BLOB NOT NULL)")
        (document,) = db.execute("SELECT document FROM specs WHERE key = ?", (good,)).fetchone()
        for number in (1, 2):
            key = f"{number}/../../../outside{number}"
            db.execute("INSERT INTO specs VALUES (?, ?)", (key, document))
            db.execute("INSERT INTO runs VALUES (?, 'done', '', 1.0, 1.0, 'simulation')", (key,))
        (weights,) = (7850 - 7840 - 10 + 50890,)
        db.execute("INSERT INTO models SELECT key, zeroblob(?) FROM runs", (4 * weights,))
    here = tmp_path / "x" / "y"
    here.mkdir(parents=True)
    done = fedcell_here("results", "export", store, "--models", "out", cwd=here)
    assert done.returncode == 0, done.stderr
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.safetensors")]
    assert {path.parent for path in found} == {Path("x/y/out")}
    assert not any("outside" in str(path) for path in found)
    listed = json.loads(fedcell_here("results", "list", store, "--json").stdout)
    assert sum(run["status"] == "damaged" for run in listed) == 2
    assert all(len(run["key"]) == 64 for run in listed)


def test_a_damaged_tournament_hides_no_other(tmp_path: Path, stored: Callable[[Path], str]) -> None:
    from fedcell.runs.contest import Scenario, Tournament, save_tournament
    from fedcell.runs.store import Store
    from fedcell.sim.spec import parse_spec

    path = tmp_path / "results.db"
    stored(path)
    wanted = Tournament([Scenario("one", "", 0.5, parse_spec(TINY, "x"))], ["all", "greedy"], [0])
    with Store(path) as store:
        save_tournament(store, wanted, {entry: run.key() for entry, run in wanted.runs().items()})
        (one,) = store.tournaments()
    deep = json.loads(json.dumps(one.document))
    deep["scenarios"][0]["spec"] = None
    many = one.document | {"policies": [f"random:k={k}" for k in range(1, 20_001)]}
    with closing(sqlite3.connect(path)) as db, db:
        for id, document, keys in (("a" * 16, deep, 2), ("b" * 16, many, 20_000), ("c" * 16, {}, 0)):
            db.execute("INSERT INTO tournaments VALUES (?, ?, 1.0, ?)", (id, json.dumps(document), b"x" * 32 * keys))
        db.execute("INSERT INTO tournaments VALUES (?, '{}', 'soon', x'00')", (b"\xff",))
    with serve(path) as served:
        listed = {one["id"]: one for one in served.get("/api/tournaments")["tournaments"]}
        assert len(listed) == 5
        assert [id for id, told in listed.items() if not told["damage"]] == [one.id]
        assert served.http.get(f"/api/tournaments/{one.id}").status_code != 500
        for id in "abc":
            answer = served.http.get(f"/api/tournaments/{id * 16}")
            assert (answer.status_code, "is damaged in the file" in answer.json()["detail"]) == (422, True), id


@pytest.fixture
def planted(tmp_path: Path, stored: Callable[[Path], str]) -> tuple[Path, str]:
    """A results file that names a module wherever it can, the module beside it, and the key of a run with a model."""
    path = tmp_path / "results.db"
    key = stored(path)
    (tmp_path / "evil.py").write_text("open('PWNED', 'w').close()\n")
    own = "json_set(document, '$.policy', 'evil:X', '$.task.engine', 'torch', '$.task.model', 'evil:f')"
    changed(
        path,
        f"UPDATE specs SET document = {own}",
        "UPDATE races SET document = json_set(document, '$.policies', json('[\"evil:X\", \"evil:Y\"]'), "
        "'$.spec.policy', 'evil:X', '$.spec.task.engine', 'torch', '$.spec.task.model', 'evil:f')",
        "CREATE TABLE models (key TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, model BLOB NOT NULL)",
        "INSERT INTO models SELECT key, zeroblob(203560) FROM runs",
    )
    return path, key


def test_looking_at_a_file_imports_nothing_that_it_names(planted: tuple[Path, str]) -> None:
    path, key = planted
    shown = path.with_name("shown.db")
    shown.write_bytes(path.read_bytes())
    changed(path, "UPDATE races SET document = json_remove(document, '$.keys')")  # as version 0.2.0 wrote them
    with serve(path, "--read", str(shown), "--workers", "1") as served:
        (race,) = states(served).values()
        assert race["state"] == "done"
        paths = served.get("/api/openapi.json")["paths"]
        names = {"id": race["id"], "key": key, "number": "1", "ending": "csv", "file": "index.html"}
        asked = 0
        for place, methods in paths.items():
            if "get" not in methods or place == "/api/events":
                continue
            filled = place.format(**names)
            for query in ("", f"?store={shown}", f"?keys={key}"):
                answer = served.http.get(filled + query)
                assert answer.status_code in (200, 404, 409, 422), (filled, answer.text)
                asked += 1
        assert asked > 40
        for place in (f"/api/runs/{key}/field", f"/api/runs/{key}/rounds/1"):
            answer = served.http.get(place)
            assert (answer.status_code, "its map needs the size" in answer.json()["detail"]) == (422, True)
        for action in ("resume", "rerun"):
            refused = served.http.post(f"/api/races/{race['id']}/{action}")
            assert refused.status_code == 409
        assert served.http.get(f"/api/races/{race['id']}/curves").status_code == 200
    assert not path.with_name("PWNED").exists()
    # Where the size of an upload is known the map is drawn.
    changed(path, "UPDATE specs SET document = json_set(document, '$.cell.model_bits', 1000000)")
    with serve(path) as served:
        assert served.http.get(f"/api/runs/{key}/field").status_code == 200
        assert served.http.get(f"/api/runs/{key}/rounds/1").status_code == 200
    assert not path.with_name("PWNED").exists()


def test_commands_import_what_a_file_names_only_when_they_are_told_to(
    planted: tuple[Path, str], fedcell_here: Call
) -> None:
    path, key = planted
    here = path.parent
    lines: list[tuple[list[str], int]] = [
        (["results", "list", "results.db"], 0),
        (["results", "list", "results.db", "--policy", "evil:X", "--csv"], 0),
        (["results", "show", "results.db", key], 0),
        (["results", "show", "results.db", key, "--json"], 0),
        (["results", "show", "results.db", key, "--per-class"], 2),
        (["results", "show", "results.db", key, "--save-model", "m.npz"], 2),
        (["results", "export", "results.db", "--csv", "x.csv"], 0),
        (["results", "export", "results.db", "--models", "m"], 2),
    ]
    for line, status in lines:
        done = fedcell_here(*line, cwd=here)
        assert done.returncode == status, (line, done.stderr)
        if status:
            assert "'evil' is user-defined code; add --allow-import if you trust the file" in done.stderr
    assert not (here / "PWNED").exists()
    for line, status in lines:
        if status:
            done = fedcell(*line, "--allow-import", cwd=here)
            assert (done.returncode, "module 'evil' has no 'f'" in done.stderr) == (2, True)
    assert (here / "PWNED").exists()


def test_printing_a_specification_imports_nothing(tmp_path: Path, fedcell_here: Call) -> None:
    (tmp_path / "evil.py").write_text("open('PWNED', 'w').close()\n")
    (tmp_path / "race.toml").write_text(
        'policy = "evil:X:k=3"\n[task]\nengine = "torch"\nmodel = "evil:f"\n[grid]\npolicy = ["evil:Y", "random:8"]\n'
    )
    for options, policies in (([], '["evil:Y", "random:k=8"]'), (["--policy", "evil:Z"], '["evil:Z"]')):
        done = fedcell_here("race", "race.toml", "--print-spec", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"\npolicy = {policies}\n" in done.stdout
        assert 'policy = "evil:X:k=3"' in done.stdout
    assert not (tmp_path / "PWNED").exists()


def test_a_link_in_the_folder_of_the_paper_is_not_followed(tmp_path: Path) -> None:
    paper = tmp_path / "paper"
    paper.mkdir()
    (paper / "index.html").write_text("<h2 id=fig1a>One</h2>")
    (paper / "fig1a.svg").write_text("<svg/>")
    (paper / "fig1a.csv").symlink_to("/etc/hostname")
    with serve(tmp_path / "results.db", "--paper", str(paper)) as served:
        (figure,) = served.get("/api/paper")["figures"]
        assert figure["files"] == ["fig1a.svg"]
        assert served.http.get("/api/paper/fig1a.csv").status_code == 404
        assert served.http.get("/api/paper/fig1a.svg").status_code == 200
