"""Races through the API of one server: their results, pause, stop, queue, resume, and workers that are killed."""

import asyncio
import itertools
import json
import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import fedcell as fc
from dashboard.races import LONG, begin
from fedcell.dashboard import limits
from fedcell.dashboard.app import build_app
from fedcell.dashboard.schemas import Curves
from fedcell.dashboard.state import ServerSettings
from fedcell.runs.race import race_spec, run_race
from fedcell.runs.race_report import curves as race_curves
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec, parse_spec
from harness import LIMIT_S, TINY, Served, read_events, serve, wait_until

pytestmark = pytest.mark.processes


def expected(document: dict[str, Any], policies: list[str], seeds: int) -> Spec:
    race = {"cell": {"radius_m": 1400.0}} | document  # the page's races take place in the race's cell
    return race_spec(parse_spec(race, "x").changed({}, {"policy": policies, "seed": list(range(seeds))}))


def end(served: Served, *ids: str) -> None:
    for id in ids:
        if served.get(f"/api/races/{id}")["state"] in ("queued", "running", "paused"):
            served.post(f"/api/races/{id}/stop")
    for id in ids:
        served.wait(id, "stopped", "done", "failed")
        served.http.delete(f"/api/races/{id}")


def test_a_race_gives_what_fedcell_race_gives(served: Served) -> None:
    policies, spec = ["greedy", "random:k=2"], TINY
    race = served.post("/api/races", {"spec": spec, "policies": policies, "seeds": 2, "target": 0.3})
    assert [one["line"] for one in race["policies"]] == policies
    assert (race["seeds"], race["target"], len(race["runs"])) == ([0, 1], 0.3, 4)
    events: dict[str, list[tuple[str, Any]]] = {}
    url = f"{served.url}api/races/{race['id']}/events"
    readers = [
        threading.Thread(target=lambda name=name: events.update({name: read_events(url)})) for name in ("a", "b")
    ]
    for reader in readers:
        reader.start()
    done = served.wait(race["id"], "done", "failed")
    assert done["state"] == "done", done
    for reader in readers:
        reader.join()
    events["late"] = read_events(url)

    contest = expected(spec, policies, 2)
    result = run_race(contest, target=0.3)
    wanted = {
        (policy, seed, r.round): list(r.numbers())
        for policy in policies
        for seed, run in zip(result.seeds, result.runs[policy], strict=True)
        for r in run
    }
    for name, found in events.items():
        rounds = [told for kind, told in found if kind == "rounds"]
        rows = {(told["policy"], told["seed"], row[0]): row for told in rounds for row in told["rows"]}
        assert rows == wanted, name
        assert sum(len(told["rows"]) for told in rounds) == len(wanted)  # each once
        assert (found[0][0], found[-1]) == ("race", ("end", {"state": "done"}))
    assert served.http.get(f"/api/races/{race['id']}/data.csv").text == result.to_csv()
    told = served.get(f"/api/races/{race['id']}/data.json")
    assert told == json.loads(result.to_json())
    against_energy = served.get(f"/api/races/{race['id']}/curves?by=energy")
    Curves.model_validate(against_energy)
    for drawn, line in zip(race_curves(result, "energy"), against_energy["policies"], strict=True):
        assert (line["clock_s"], line["spent_j"], line["mean"]) == (None, drawn.x.tolist(), drawn.accuracy.tolist())
    curves = served.get(f"/api/races/{race['id']}/curves")
    Curves.model_validate(curves)
    for policy, line, row in zip(policies, curves["policies"], curves["table"], strict=True):
        summary = result.summaries()[policy]
        assert line["clock_s"] == summary.curve.x.tolist()
        assert line["mean"] == summary.curve.accuracy.tolist()
        assert line["seeds_done"] == row["seeds"] == 2
        assert row["joules"] == {"mean": summary.joules.mean, "half": None, "low": None, "high": None}  # two seeds
        assert row["energy_to_target"]["reached"] == summary.energy_to_target.reached
        assert row["best"]["mean"] == summary.best.mean
        assert row["time_to_target"]["reached"] == summary.to_target.reached
        assert (line["low"], line["high"], len(line["seeds"])) == (None, None, 2)  # too few for a band
    assert curves["so_far_s"] is None
    assert len(curves["verdicts"]) == 1
    for ending, start in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        assert served.http.get(f"/api/races/{race['id']}/figure.{ending}").content.startswith(start)
    again = served.post("/api/races", {"spec": spec, "policies": policies, "seeds": 2})
    assert served.wait(again["id"], "done")["runs"] == done["runs"]  # from the store, and told as before
    with Store(Path(served.get("/api/info")["stores"][0]["name"]), "read") as store:
        assert len(store.runs()) == 4
    end(served, race["id"], again["id"])


def test_pause_continue_stop_and_resume(served: Served) -> None:
    id = begin(served, LONG)
    assert served.http.post(f"/api/races/{id}/continue").status_code == 409
    path = f"/api/races/{id}"
    served.until(path, lambda race: (race["runs"][0]["rounds"] or 0) > 3)
    assert served.post(f"{path}/pause")["state"] == "paused"

    def rounds() -> int:
        return int(served.get(path)["runs"][0]["rounds"])

    seen = [rounds()]
    while len(seen) < 3 or seen[-1] != seen[-3]:  # until the workers have stood still for a while
        time.sleep(0.4)
        seen.append(rounds())
    assert served.http.post(f"{path}/pause").status_code == 409
    assert served.http.delete(path).status_code == 409
    key = served.get(path)["runs"][0]["key"]
    live = served.until(f"/api/runs/{key}", lambda found: len(found["rows"]) == rounds())
    last = len(live["rows"])
    assert (live["run"]["status"], last - seen[-1] in (0, 1)) == ("running", True)  # one was perhaps being trained
    assert served.get(f"/api/runs/{key}/rounds/{last}")["round"] == last
    assert served.post(f"{path}/continue")["state"] == "running"
    served.until(path, lambda race: race["runs"][0]["rounds"] > last)
    assert served.post(f"{path}/stop")["state"] == "stopping"
    stopped = served.wait(id, "stopped")
    assert stopped["runs"][0]["state"] == "waiting"
    before = stopped["runs"][0]["rounds"]
    stored = served.get(f"/api/runs/{key}")
    assert (stored["run"]["status"], len(stored["rows"])) == ("unfinished", before)
    assert served.post(f"{path}/resume")["state"] in ("queued", "running")
    after = served.until(path, lambda race: race["runs"][0]["rounds"] > before)
    assert after["runs"][0]["rounds"] > before  # it never went back
    rows = [row for kind, told in _some_events(served, id, before + 1) if kind == "rounds" for row in told["rows"]]
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))  # resumed, and no round twice
    end(served, id)


def _some_events(served: Served, id: str, rounds: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    with httpx.stream("GET", f"{served.url}api/races/{id}/events", timeout=LIMIT_S) as stream:
        name, seen = "", 0
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
                seen += len(found[-1][1]["rows"]) if name == "rounds" else 0
                if seen >= rounds:
                    return found
    return found


def test_races_wait_for_each_other_and_can_be_cancelled(served: Served) -> None:
    first = begin(served, LONG)
    served.wait(first, "running")
    others = [begin(served, TINY | {"rounds": 1 + i}) for i in range(3)]
    assert [served.get(f"/api/races/{id}")["position"] for id in (first, *others)] == [None, 1, 2, 3]
    assert [race["id"] for race in served.get("/api/races")["races"]] == [*reversed(others), first]
    assert served.post(f"/api/races/{others[1]}/stop")["state"] == "stopped"
    assert served.http.delete(f"/api/races/{others[0]}").status_code == 204
    assert served.http.get(f"/api/races/{others[0]}").status_code == 404
    assert served.get(f"/api/races/{others[2]}")["position"] == 1
    served.post(f"/api/races/{first}/stop")
    served.wait(others[2], "done")
    served.wait(first, "stopped")
    assert served.get(f"/api/races/{others[1]}")["state"] == "stopped"
    end(served, first, others[1], others[2])


def test_the_queue_has_an_end(served: Served) -> None:
    first = begin(served, LONG)
    served.wait(first, "running")
    waiting = [begin(served, TINY) for _ in range(20)]
    answer = served.http.post("/api/races", json={"spec": TINY})
    assert (answer.status_code, "20 races wait already" in answer.json()["detail"]) == (409, True)
    for id in waiting:
        assert served.http.delete(f"/api/races/{id}").status_code == 204
    end(served, first)


def test_a_race_has_a_name_and_a_command_and_is_deleted_with_the_runs_that_no_other_has(served: Served) -> None:
    spec = TINY | {"task": {"hidden": [3]}}
    one, two = begin(served, spec, policies=["all", "random:k=2"]), begin(served, spec, policies=["all"])
    for id in (one, two):
        served.wait(id, "done")
    path = f"/api/races/{one}"
    answer = served.http.patch(path, json={"name": " first ", "note": "why"})
    assert (answer.json()["name"], answer.json()["note"]) == ("first", "why")
    assert served.http.patch(path, json={"name": ""}).json()["note"] == "why"
    assert served.http.patch(path, json={"name": 101 * "x"}).status_code == 422
    assert served.http.patch("/api/races/0", json={"name": "x"}).status_code == 404
    told = served.get(f"{path}/command")
    assert told["command"] == "fedcell race race.toml"
    assert "hidden = [3]" in told["toml"]
    keys = {run["policy"]: run["key"] for run in served.get(path)["runs"]}
    before = served.get(f"/api/runs/{keys['random:k=2']}")
    assert served.post(f"{path}/rerun")["state"] in ("queued", "running")
    served.wait(one, "done")
    again = served.get(f"/api/runs/{keys['random:k=2']}")
    assert again["rows"] == before["rows"]
    assert again["run"]["finished_unix_s"] > before["run"]["finished_unix_s"]
    assert served.http.delete(f"{path}?runs=true").status_code == 204
    assert served.http.get(f"/api/runs/{keys['random:k=2']}").status_code == 404
    assert served.http.get(f"/api/runs/{keys['all']}").status_code == 200  # the other race's too
    end(served, two)


def test_runs_of_a_tournament_stay_when_a_race_is_deleted_with_its_runs(tmp_path: Path) -> None:
    """A race of the cell of a tournament takes its runs from the file."""
    policies, document = ["all", "random:k=2", "random:k=3"], TINY | {"task": {"hidden": [5]}}
    contest = fc.Tournament([fc.Scenario("one", "", 0.8, parse_spec(document, "x"))], policies[:2], [0, 1])
    with Store(tmp_path / "results.db") as store:
        fc.run_tournament(contest, store, workers=1)
        [tournament] = store.tournaments()
    assert len(tournament.keys) == 4
    with serve(tmp_path / "results.db") as served:
        id = begin(served, document, seeds=2, policies=policies)
        served.wait(id, "done")
        keys = {run["key"] for run in served.get(f"/api/races/{id}")["runs"]}
        assert set(tournament.keys) < keys
        assert served.get(f"/api/races/{id}/runs") == {"runs": 6, "shared": 4}
        ranked = served.get(f"/api/tournaments/{tournament.id}")
        assert served.http.delete(f"/api/races/{id}?runs=true").status_code == 204
        left = {key for key in keys if served.http.get(f"/api/runs/{key}").status_code == 200}
        assert left == set(tournament.keys)
        assert served.get(f"/api/tournaments/{tournament.id}") == ranked


def another_worker(served: Served, path: str, than: set[int]) -> bool:
    race = served.get(path)
    assert race["state"] == "running", race
    return not set(served.workers()) <= than


def test_killed_workers_are_replaced_and_no_round_is_lost(served: Served) -> None:
    id = begin(served, LONG | {"rounds": 3999})
    path = f"/api/races/{id}"
    served.until(path, lambda race: (race["runs"][0]["rounds"] or 0) > 2)
    for _ in range(4):  # more often than a run that does not get on is tried
        killed = set(wait_until(served.workers, "workers"))
        for pid in killed:
            with suppress(ProcessLookupError):  # one that was killed before may still have been listed
                os.kill(pid, signal.SIGKILL)
        # What a killed one had sent may come late, and would look as if the run had got on since.
        wait_until(partial(another_worker, served, path, killed), "another worker")
        seen = served.get(path)["runs"][0]["rounds"]
        served.until(path, lambda race, seen=seen: race["runs"][0]["rounds"] > seen + 1)
    rows = [row for kind, told in _some_events(served, id, 30) if kind == "rounds" for row in told["rows"]]
    whole = fc.simulate(expected(LONG | {"rounds": 3999}, ["all"], 1).runs()[0])
    assert rows[:5] == [list(record.numbers()) for record in itertools.islice(whole, 5)]
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    end(served, id)
    other = begin(served, TINY)
    assert served.wait(other, "done", "failed")["state"] == "done"
    end(served, other)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"spec": {"task": {"data": "/etc/passwd"}}}, "task.data is '/etc/passwd'; over the network only mnist"),
        (
            {"spec": {"devices": {"availability": " Trace :/etc/passwd"}}},
            "devices.availability is ' Trace :/etc/passwd'; over the network only always or daynight",
        ),
        ({"spec": {"task": {"model": "os:system"}}}, "task.model is 'os:system'"),
        ({"spec": {"task": {"device": "cuda:7"}}}, "task.device is 'cuda:7'"),
        (
            {"spec": {"cell": {"channel": "trace:/etc/passwd"}}},
            "channel is 'trace:/etc/passwd'; over the network",
        ),
        ({"spec": {"cell": {"channel": "umb"}}}, "unknown channel 'umb'"),
        ({"spec": {"policy": "all"}}, "spec has policy"),
        ({"spec": {"grid": {}}}, "spec has grid"),
        ({"spec": {"devices": {"count": 2001}}}, "devices.count is 2001; 2,000 at most"),
        ({"spec": {"devices": {"count": 10**400}}}, "devices.count"),
        ({"spec": {"rounds": 5001}}, "rounds is 5001; 5,000 at most"),
        ({"spec": {"budget_s": 1e7}}, "budget_s is 10000000.0; 1,000,000 at most"),
        ({"spec": {"task": {"hidden": [600]}}}, "the sum of task.hidden is 600"),
        ({"spec": {"task": {"epochs": 21}}}, "task.epochs is 21"),
        ({"spec": {"radius_m": 3}}, "unknown field 'radius_m'"),
        ({"spec": {"cell": {"radius": 3}}}, "did you mean 'radius_m'"),
        ({"spec": {"cell": 3}}, "cell"),
        ({"spec": 3}, "spec: input should be an object"),
        ({"seeds": 0}, "seeds: input should be greater than or equal to 1"),
        ({"seeds": 101}, "the race has 808 runs; 800 at most"),
        ({"target": 2}, "target: input should be less than or equal to 1"),
        ({"policies": ["all", "all"]}, "the policy 'all' twice"),
        ({"policies": ["json:dumps"]}, "named policies only"),
        ({"policies": ["random"]}, "policy 'random' needs k"),
    ],
)
def test_races_that_are_refused(served: Served, document: dict[str, Any], words: str) -> None:
    answer = served.http.post("/api/races", json=document)
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True), answer.text


def test_a_race_is_a_short_document(served: Served) -> None:
    answer = served.http.post("/api/races", json={"spec": {str(i): 1 for i in range(8000)}})
    assert (answer.status_code, "larger than 64 KiB" in answer.json()["detail"]) == (413, True)


def test_a_run_that_fails_says_why(served: Served) -> None:
    id = begin(served, TINY | {"task": {"engine": "mlp", "model": "cnn"}})
    assert "all, seed 0: task.model is 'cnn', which the mlp engine cannot train" in served.wait(id, "failed")["reason"]
    end(served, id)


def test_a_failing_policy_does_not_end_the_race_of_the_others(served: Served) -> None:
    race = served.post("/api/races", {"policies": ["all", "random:k=9"], "seeds": 1, "spec": TINY})
    done = served.wait(race["id"], "done", "failed")
    assert done["state"] == "done"
    assert done["reason"].startswith("1 of 2 runs failed, the first of them random:k=9, seed 0: k is 9, but the cell")
    assert {run["policy"]: run["state"] for run in done["runs"]} == {"all": "done", "random:k=9": "failed"}
    assert [run["reason"][:7] for run in done["runs"]] == ["", "k is 9,"]
    table = served.get(f"/api/races/{race['id']}/curves")["table"]
    assert [(row["policy"], row["seeds"], row["failed"]) for row in table] == [("all", 1, 0), ("random:k=9", 0, 1)]
    document = served.http.get(f"/api/races/{race['id']}/data.json").json()  # of the policies that did not fail
    assert (list(document["policies"]), len(document["failures"]), document["complete"]) == (["all"], 1, False)
    assert served.http.get(f"/api/races/{race['id']}/figure.png").status_code == 200
    end(served, race["id"])


def test_diverged_seeds_are_counted(served: Served) -> None:
    spec = TINY | {"task": {"hidden": [4], "learning_rate": 1e30}}
    race = served.post("/api/races", {"policies": ["all"], "seeds": 2, "spec": spec})
    assert served.wait(race["id"], "done", "failed")["state"] == "done"
    (row,) = served.get(f"/api/races/{race['id']}/curves")["table"]
    assert (row["seeds"], row["diverged"], row["failed"]) == (2, 2, 0)
    keys = [run["key"] for run in race["runs"]]
    listed = {run["key"]: run["diverged"] for run in served.get("/api/runs?limit=100")["runs"]}
    assert [listed[key] for key in keys] == [True, True]
    (row,) = served.get(f"/api/results/compare?keys={','.join(keys)}")["table"]
    assert (row["seeds"], row["diverged"]) == (2, 2)
    end(served, race["id"])


def test_the_next_server_knows_which_runs_failed_and_leaves_them_out_of_means(tmp_path: Path) -> None:
    with serve(tmp_path / "r.db", "--workers", "1") as first:
        race = first.post("/api/races", {"policies": ["all", "random:k=9"], "seeds": 1, "spec": TINY})
        first.wait(race["id"], "done", "failed")
        first.stop()
    with serve(tmp_path / "r.db") as second:
        runs = second.get(f"/api/races/{race['id']}")["runs"]
        assert [(run["state"], run["reason"][:7]) for run in runs] == [("done", ""), ("failed", "k is 9,")]
        table = second.get(f"/api/races/{race['id']}/curves")["table"]
        assert [(row["seeds"], row["failed"]) for row in table] == [(1, 0), (0, 1)]
        keys = ",".join(run["key"] for run in runs)
        table = second.get(f"/api/results/compare?keys={keys}")["table"]
        assert [(row["policy"], row["seeds"], row["failed"]) for row in table] == [("all", 1, 0), ("random:k=9", 0, 1)]


def test_a_stream_of_a_race_whose_rounds_are_at_hand_waits_for_nobody(tmp_path: Path) -> None:
    """A hundred may begin at once, more than requests may wait for a thread."""
    app, _, state = build_app(ServerSettings(tmp_path / "results.db", workers=1))
    race = state.races.create(expected(TINY, ["all"], 1), 0.5)
    wait_until(lambda: race.ended, "the race to end")

    async def ask(path: str) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return (await client.get(f"/api/races/{race.id}{path}")).status_code

    held = threading.Event()
    try:
        for _ in range(1 + limits.READS_WAITING):
            state.views.submit(held.wait)
        assert [asyncio.run(ask(path)) for path in ("/events", "/curves")] == [200, 503]
    finally:
        held.set()
        state.close()


def test_fifty_streams_and_one_that_never_reads(served: Served) -> None:
    id = begin(served, LONG)
    served.until(f"/api/races/{id}", lambda race: (race["runs"][0]["rounds"] or 0) > 2)
    before = served.rss_mb()
    request = f"GET /api/races/{id}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode()
    with ExitStack() as open_ones:
        deaf, *sockets = (
            open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(limits.STREAMS)
        )
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for one in [deaf, *sockets]:
            one.sendall(request)
        for one in sockets:
            assert b"200 OK" in one.recv(4096)
        deaf.recv(1, socket.MSG_PEEK)  # it has begun, too
        answer = served.http.get(f"/api/races/{id}/events")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        seen = served.get(f"/api/races/{id}")["runs"][0]["rounds"]
        served.until(f"/api/races/{id}", lambda race: race["runs"][0]["rounds"] > seen + 20)  # all goes on
        assert served.rss_mb() - before < 100
    wait_until(lambda: read_some(served, id), "a place to become free")
    served.post(f"/api/races/{id}/stop")
    served.wait(id, "stopped")


def read_some(served: Served, id: str) -> bytes:
    with httpx.stream("GET", f"{served.url}api/races/{id}/events", timeout=LIMIT_S) as stream:
        return next(stream.iter_bytes()) if stream.status_code == 200 else b""
