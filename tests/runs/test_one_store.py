"""Everybody on one store at once, killed at random: no run that anyone was told is stored is ever lost."""

import json
import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from fedcell.runs.store import Store
from harness import FEDCELL, TINY, Process, http_client, wait_until
from twins.small import write_small_npz

pytestmark = pytest.mark.processes
KILLS = 50
SWEEP = """
rounds = 10
[task]
data = "small.npz"
hidden = [8]
[grid]
policy = ["slow:Slow:k=3", "slow:Slow:k=4"]
seed = [{seeds}]
"""
SLOW = """
import time
from dataclasses import dataclass
import fedcell as fc

@dataclass(frozen=True)
class Slow(fc.Random):
    def choose(self, view, rng):
        time.sleep(0.05)
        return super().choose(view, rng)
"""
"""So that a run takes a while, most of which it waits: a sweep all the time would be half of this test's work."""
READERS = (
    ("list", "results.db", "--json"),
    ("export", "results.db", "--csv", "rounds.csv"),
    ("show", "results.db", "{key}", "--json"),
)


class Servers:
    """Two servers of one store, as two browsers' users have them; a killed one is started again."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack, self._directory = stack, directory
        self._running: dict[str, Process] = {}
        self._http = stack.enter_context(http_client())
        self.asked = 0

    def start(self, name: str) -> None:
        command = (*FEDCELL, "serve", "results.db", "--no-browser", "--port", "0", "--workers", "1")
        self._running[name] = self._stack.enter_context(Process(*command, cwd=self._directory))

    def url(self, name: str) -> str:
        process = self._running[name]
        process.wait_for(lambda: process.out.endswith("\n"), "the server's address")
        return process.out.split()[3]

    def race(self, name: str) -> None:
        """Have it compute something that nobody has computed before.

        Little training: a race is of tenths of a second, about as long as it is left alone before a kill.
        """
        self.asked += 1
        spec = TINY | {"rounds": 20, "task": {"hidden": [4], "sizes": [300 + self.asked] * 4}}
        document = {"spec": spec, "policies": ["all"], "seeds": 1}
        answer = self._http.post(f"{self.url(name)}api/races", json=document)
        assert answer.status_code in (201, 409), answer.text  # 409: enough wait already

    def told(self, name: str) -> set[str]:
        """The runs that its page lists as done, in its list of runs and in its races."""
        runs = self._http.get(f"{self.url(name)}api/runs?limit=1000").json()["runs"]
        races = self._http.get(f"{self.url(name)}api/races").json()["races"]
        found = {run["key"] for run in runs if run["status"] == "done"}
        return found | {run["key"] for race in races for run in race["runs"] if run["state"] == "done"}

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        assert not process.ended, process.err
        process.kill()
        assert process.err == "", process.err


def _none_living(process: Process) -> bool:
    return not process.living()


def test_no_run_that_anyone_was_told_is_stored_is_ever_lost(tmp_path: Path) -> None:
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "sweep.toml").write_text(SWEEP.format(seeds=", ".join(map(str, range(250)))))
    chance, told, kills = random.Random(0), set[str](), dict.fromkeys(("one", "two", "sweep", "reader"), 0)
    with ExitStack() as stack:

        def start(*arguments: str) -> Process:
            return stack.enter_context(Process(*FEDCELL, *arguments, cwd=tmp_path))

        def hear(known: int) -> bool:
            told.update(servers.told("one"), servers.told("two"))
            return len(told) > known

        servers = Servers(stack, tmp_path)
        servers.start("one")
        servers.start("two")
        sweep = start("sweep", "sweep.toml", "--store", "results.db", "--workers", "1")
        while sum(kills.values()) < KILLS:
            wait_until(partial(hear, len(told)), "another run that is told of", every_s=0.4)
            servers.race(chance.choice(("one", "two")))
            victim = chance.choice(list(kills))
            kills[victim] += 1
            reader, reads = None, chance.choice(READERS[: 3 if told else 2])
            if victim == "reader" or chance.random() < 0.3:
                reader = start("results", *(part.format(key=min(told, default="")) for part in reads))
            time.sleep(0.5 * chance.random())  # the moment of the kill is what is random here; nothing is waited for
            if victim == "reader" and reader is not None:
                reader.kill()
            elif victim == "sweep":
                assert not sweep.ended, sweep.err
                sweep.kill()
                wait_until(partial(_none_living, sweep), "the sweep's workers to end with it")
                sweep = start("sweep", "sweep.toml", "--store", "results.db", "--workers", "1")
            else:
                servers.kill(victim)
                servers.start(victim)
            if victim != "reader" and reader is not None:  # it was reading while another was killed
                listed = reader.finish()
                assert listed.returncode == 0, listed.stderr
                found = json.loads(listed.stdout) if "list" in reads else []
                told |= {run["key"] for run in found if run["status"] == "done"}
    assert min(kills.values()) > 3
    assert servers.asked >= KILLS
    assert len(told) >= KILLS
    with Store(tmp_path / "results.db", "read") as store:
        assert store.done(told) == told
        assert all(len(store.get(key)) > 0 for key in told)
