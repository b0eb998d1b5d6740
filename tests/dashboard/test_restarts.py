"""Servers that are killed, stopped, started again, or share their results file with another process."""

import os
import signal
import socket
from pathlib import Path

import pytest

from dashboard.races import LONG, begin
from harness import FEDCELL, TINY, Process, read_events, serve, wait_until

pytestmark = pytest.mark.processes


def test_a_killed_server_offers_to_resume(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    quick, slow = TINY, LONG
    with serve(store, "--workers", "1") as first:
        done = begin(first, quick)
        first.wait(done, "done")
        id = begin(first, slow)
        waits = begin(first, quick | {"rounds": 3})
        first.until(f"/api/races/{id}", lambda race: (race["runs"][0]["rounds"] or 0) > 2)
        assert first.workers()
        first.kill()
        wait_until(lambda: not first.process.living(), "the workers to end with their server")
    with serve(store, "--workers", "1") as second:
        states = {race["id"]: race for race in second.get("/api/races")["races"]}
        assert {key: race["state"] for key, race in states.items()} == {
            done: "done",
            id: "interrupted",
            waits: "interrupted",
        }
        assert "resume it" in states[id]["reason"]
        assert second.post(f"/api/races/{waits}/resume")["state"] in ("queued", "running", "done")
        assert second.wait(waits, "done")["reason"] == ""
        rows = read_events(f"{second.url}api/races/{done}/events")
        assert [row[0] for kind, told in rows if kind == "rounds" for row in told["rows"]] == [1, 2]
        second.post(f"/api/races/{id}/resume")
        reached = second.until(f"/api/races/{id}", lambda race: (race["runs"][0]["rounds"] or 0) > 2)["runs"][0]
    with serve(store) as third:  # ended with Ctrl-C in the middle of it: everything up to then is kept
        races = {race["id"]: race for race in third.get("/api/races")["races"]}
        assert {key: race["state"] for key, race in races.items()} == {done: "done", id: "interrupted", waits: "done"}
        assert races[id]["runs"][0]["rounds"] >= reached["rounds"]


def test_stopping_waits_for_nobody(tmp_path: Path) -> None:
    """Open streams, half a request, a plan of a minute and a round that is being trained: none of them holds it up."""
    store = tmp_path / "results.db"
    slow = {"rounds": 4000, "devices": {"count": 2}, "task": {"hidden": [400], "epochs": 20}}
    with serve(store, "--workers", "1") as served:
        id = begin(served, TINY | {"rounds": 4000})
        told = served.until(f"/api/races/{id}", lambda race: (race["runs"][0]["rounds"] or 0) > 2)["runs"][0]["rounds"]
        served.post(f"/api/races/{id}/stop")
        served.wait(id, "stopped")
        late = begin(served, slow)
        served.wait(late, "running")
        wait_until(served.workers, "workers")
        host = f"Host: 127.0.0.1:{served.port}\r\n"
        table = "upload_s,compute_s\n" + "1,1\n" * 90_000
        head = f"POST /api/plan HTTP/1.1\r\n{host}Content-Type: text/csv\r\nContent-Length: {len(table)}\r\n\r\n"
        stream = f"GET /api/races/{late}/events HTTP/1.1\r\n{host}\r\n"
        sockets = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(3)]
        for one, sent in zip(sockets, (head + table, stream, "GET / HT"), strict=True):
            one.sendall(sent.encode())
        assert b"200 OK" in sockets[1].recv(4096)
        served.http.close()
        os.kill(served.process.pid, signal.SIGTERM)
        done = served.process.finish(limit_s=20)  # the plan alone takes longer
        assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
        wait_until(lambda: not served.process.living(), "the workers to end")
        for one in sockets:
            one.close()
    with serve(store) as again:
        states = {race["id"]: race for race in again.get("/api/races")["races"]}
        assert (states[id]["state"], states[late]["state"]) == ("stopped", "interrupted")
        assert states[id]["runs"][0]["rounds"] >= told


def test_a_race_in_a_terminal_is_shown_while_it_runs_and_can_be_resumed_here(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    policies = ["all", "random:k=5"]
    options = [option for policy in policies for option in ("--policy", policy)]
    (tmp_path / "race.toml").write_text(f"rounds = 4000\n[task]\nhidden = [4]\nsizes = {LONG['task']['sizes']}\n")
    command = (*FEDCELL, "race", "race.toml", "--seeds", "1", "--workers", "1", "--store", "results.db", *options)
    with serve(store, "--workers", "1") as served, Process(*command, cwd=tmp_path) as terminal:
        (race,) = served.until("/api/races", lambda found: found["races"])["races"]
        assert (race["state"], race["elsewhere"], [one["line"] for one in race["policies"]]) == (
            "running",
            True,
            policies,
        )
        path = f"/api/races/{race['id']}"
        first = served.until(path, lambda race: (race["runs"][0]["rounds"] or 0) > 0)["runs"][0]["rounds"]
        served.until(path, lambda race: race["runs"][0]["rounds"] > first)  # it grows
        assert served.get(f"/api/runs/{race['runs'][0]['key']}")["rows"]
        for action in ("pause", "stop", "resume"):
            answer = served.http.post(f"{path}/{action}")
            assert (answer.status_code, "running in another process" in answer.json()["detail"]) == (409, True)
        assert served.http.delete(path).status_code == 409
        terminal.interrupt()
        done = terminal.finish()
        assert (done.returncode, "run the same command to resume" in done.stderr) == (130, True), done.stderr
        stopped = served.until(path, lambda race: not race["elsewhere"])
        assert stopped["state"] == "stopped"
        rounds = [run["rounds"] for run in stopped["runs"]]
        assert min(rounds) > 0
        served.post(f"{path}/resume")
        more = served.until(path, lambda race: race["runs"][0]["rounds"] > rounds[0])
        served.post(f"{path}/stop")
        served.wait(race["id"], "stopped")
        assert len(more["runs"]) == 2


def test_two_servers_of_one_file_show_each_others_races(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    with serve(store, "--workers", "1") as one, serve(store, "--workers", "1") as two:
        id = begin(one, LONG)
        path = f"/api/races/{id}"
        seen = two.until("/api/races", lambda found: found["races"])["races"][0]
        assert (seen["id"], seen["elsewhere"]) == (id, True)
        one.until(path, lambda race: (race["runs"][0]["rounds"] or 0) > 2)
        one.post(f"{path}/stop")
        rounds = one.wait(id, "stopped")["runs"][0]["rounds"]
        stopped = two.until(path, lambda race: race["state"] == "stopped")
        assert (stopped["elsewhere"], stopped["runs"][0]["rounds"]) == (False, rounds)
        two.post(f"{path}/resume")
        two.until(path, lambda race: race["runs"][0]["rounds"] > rounds)
        again = one.until(path, lambda race: race["elsewhere"])
        assert again["state"] in ("queued", "running")
        two.post(f"{path}/stop")
        two.wait(id, "stopped")
        one.until(path, lambda race: race["state"] == "stopped" and not race["elsewhere"])
        assert one.http.delete(path).status_code == 204
        assert one.get("/api/races")["races"] == []
