"""A soak of Scheduled: `make soak`, or `python tests/flower/soak.py [--nodes 20] [--rounds 20] [--seed 0]`.

A federation on loopback, with TLS and node keys, trains twice: undisturbed, and while nodes are killed, paused, made
slow, come back and lie at random, and the ServerApp is killed twice. The second run must reach the accuracy of the
first, in at most three times as many rounds, account for every round, and leave no traceback in any log.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[1]))

from flower.deployment import LINK, Deployment
from flower.digits import DIGITS, LIES, mark, write_digits
from flower.runs import delivered_names, rounds_of, run_config

START_S = 600.0
FAULT_EVERY_S = 6.0
LASTS_S = (10.0, 45.0)
KINDS = ("kill", "pause", "slow", "lie", "lie")
SLOW_S = 20.0
RETRY_S = 10.0
SERVER_KILLS = 2
LABELS, POLICY = 10, "optimal:max_devices=5"
"""Every device has every digit: what a round without one of its devices learns is less, but not something else."""
MORE_ROUNDS = 3
"""The disturbed run may take so many times as many rounds to the same accuracy."""


class Trouble:
    """What is wrong with which node, and until when."""

    def __init__(self, federation: Deployment, nodes: int, rng: random.Random) -> None:
        self.federation, self.nodes, self.rng = federation, nodes, rng
        self.now: dict[int, tuple[str, float]] = {}
        self.returning: dict[int, float] = {}
        self.made: Counter[str] = Counter()
        self._next_s = time.monotonic()

    def tick(self) -> None:
        """End what is over, and begin something new now and then; most nodes are always well."""
        now_s = time.monotonic()
        for i, (kind, until_s) in list(self.now.items()):
            if now_s > until_s:
                self._end(i, kind)
        for i in [i for i in self.returning if now_s > self.returning[i]]:
            if self.federation.ended(f"node-{i}"):  # Flower refuses a killed node's key for a minute
                start(self.federation, i)
                self.returning[i] = now_s + RETRY_S
            else:
                del self.returning[i]
        if now_s < self._next_s or len(self.now) >= self.nodes // 3:
            return
        self._next_s = now_s + self.rng.expovariate(1 / FAULT_EVERY_S)
        i = self.rng.choice([i for i in range(self.nodes) if i not in self.now and i not in self.returning])
        kind = self.rng.choice(KINDS)
        self._begin(i, kind)
        self.now[i] = kind, now_s + self.rng.uniform(*LASTS_S)
        self.made[kind] += 1

    def end_all(self) -> None:
        for i, (kind, _) in list(self.now.items()):
            self._end(i, kind)

    def _begin(self, i: int, kind: str) -> None:
        if kind == "kill":
            self.federation.kill(f"node-{i}")
        elif kind == "pause":
            self._signal(i, signal.SIGSTOP)
        else:
            mark(self.federation.folder, kind, i, str(SLOW_S) if kind == "slow" else self.rng.choice(LIES))

    def _end(self, i: int, kind: str) -> None:
        if kind == "kill":
            start(self.federation, i)
            self.returning[i] = time.monotonic() + RETRY_S
        elif kind == "pause":
            self._signal(i, signal.SIGCONT)
        else:
            mark(self.federation.folder, kind, i, None)
        del self.now[i]

    def _signal(self, i: int, number: int) -> None:
        for process in self.federation.processes(f"node-{i}"):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def start(federation: Deployment, i: int) -> None:
    federation.start_node(f"node-{i}", f"partition-id={i}")


def config(folder: Path, state: str, options: argparse.Namespace, **values: Any) -> str:
    usual = {"folder": str(folder), "state": state, "nodes": options.nodes, "rounds": options.rounds}
    return run_config({**usual, "policy": POLICY, "seed": options.seed, **values})


def disturbed(federation: Deployment, options: argparse.Namespace, target: float) -> Trouble:
    """Train to the target, whatever happens; return what was done to it."""
    folder, state, rng = federation.folder, federation.folder / "disturbed", random.Random(options.seed)
    trouble = Trouble(federation, options.nodes, rng)
    kill_after = sorted(rng.sample(range(2, max(4, options.rounds // 2)), SERVER_KILLS))
    settings = config(folder, "disturbed", options, rounds=MORE_ROUNDS * options.rounds, target=target)
    federation.submit("disturbed-0", DIGITS, settings)
    runs, until_s = 1, time.monotonic() + 60.0 * options.minutes
    while not federation.ended(f"disturbed-{runs - 1}"):
        assert time.monotonic() < until_s, f"not trained after {options.minutes} minutes"
        trouble.tick()
        if kill_after and rounds_so_far(state) >= kill_after[0]:
            kill_after.pop(0)
            kill_server(federation)
            trouble.made["kill the ServerApp"] += 1
            federation.kill(f"disturbed-{runs - 1}")  # `flwr run --stream`, which follows it
            federation.submit(f"disturbed-{runs}", DIGITS, settings)
            runs += 1
        time.sleep(0.5)
    federation.finish(f"disturbed-{runs - 1}", START_S)
    trouble.end_all()
    return trouble


def accuracy_of(rounds: list[dict[str, Any]]) -> float:
    """The accuracy after the last round."""
    return float(rounds[-1]["metrics"]["server"]["accuracy"])


def rounds_so_far(state: Path) -> int:
    with suppress(json.JSONDecodeError):  # a line that is being written
        return len(rounds_of(state))
    return 0


def kill_server(federation: Deployment) -> None:
    """SIGKILL for the process in which the ServerApp runs."""
    for process in federation.processes(LINK):
        with suppress(psutil.NoSuchProcess):
            if any("serverapp" in word for word in process.cmdline()) and process.pid != federation.pid(LINK):
                process.kill()


def check(rounds: list[dict[str, Any]]) -> None:
    """Every round is there, in order, and each of its devices is accounted for."""
    assert [r["round"] for r in rounds] == list(range(1, len(rounds) + 1))
    clock_s = 0.0
    for r in rounds:
        assert set(r["delivered"]) | set(r["late"]) <= set(r["devices"])
        assert len(r["devices"]) == len(r["names"]) == len(r["finish_s"])
        assert r["clock_s"] >= clock_s + 0.99 * r["round_s"]
        clock_s = r["clock_s"]


def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, Deployment(Path(folder) / "soak", cold=True) as federation:
        write_digits(federation.folder, options.nodes, LABELS)
        federation.start_superlink(START_S)
        federation.register(*(f"node-{i}" for i in range(options.nodes)))
        for i in range(options.nodes):
            start(federation, i)
        nodes = [f"node-{i}" for i in range(options.nodes)]
        federation.wait_for("all nodes", lambda: all(federation.connected(name) for name in nodes), START_S)
        began_s = time.monotonic()
        federation.submit("plain", DIGITS, config(federation.folder, "plain", options))
        federation.finish("plain", 60.0 * options.minutes)
        plain_s = time.monotonic() - began_s
        print(f"undisturbed: {plain_s:.0f} s", flush=True)
        began_s = time.monotonic()
        target = accuracy_of(rounds_of(federation.folder / "plain"))
        trouble = disturbed(federation, options, target)
        took_s = time.monotonic() - began_s
        found = {name: rounds_of(federation.folder / name) for name in ("plain", "disturbed")}
        for rounds in found.values():
            check(rounds)
        report(found, {"plain": plain_s, "disturbed": took_s}, trouble)
        flowers = check_logs(federation)
        assert accuracy_of(found["disturbed"]) >= target
        assert trouble.made["kill the ServerApp"] == SERVER_KILLS
        refused = sum(federation.log(f"disturbed-{n}").count("is not used") for n in range(SERVER_KILLS + 1))
        print(f"replies that were not used: {refused}; every round is accounted for")
        print(f"tracebacks in the logs: none of fedcell's or the app's, {flowers} of Flower's own in those of nodes")


def check_logs(federation: Deployment) -> int:
    """No traceback of the server or of our code; return how many Flower's nodes have of their own.

    A SuperNode that was paused finds that its task is no longer its own, and one whose key is refused interrupts what
    it has just started: Flower writes tracebacks for both.
    """
    flowers = 0
    for name in [path.stem for path in federation.folder.glob("*.log")]:
        for found in federation.log(name).split("Traceback (most recent call last)")[1:]:
            ours = "/fedcell/" in found[:6000] or "digits.py" in found[:6000] or not name.startswith("node-")
            assert not ours, f"a traceback in {name}.log: {found[:3000]}"
            flowers += 1
    return flowers


def report(found: dict[str, list[dict[str, Any]]], seconds: dict[str, float], trouble: Trouble) -> None:
    print(f"done to it: {', '.join(f'{kind} {count} times' for kind, count in sorted(trouble.made.items()))}")
    print(f"{'run':10} {'s':>6} {'rounds':>7} {'empty':>6} {'asked':>6} {'used':>5} {'accuracy at the end':>20}")
    for name, rounds in found.items():
        asked, used = sum(len(r["devices"]) for r in rounds), sum(len(delivered_names(r)) for r in rounds)
        empty = sum(not r["delivered"] for r in rounds)
        accuracy = accuracy_of(rounds)
        print(f"{name:10} {seconds[name]:6.0f} {len(rounds):7} {empty:6} {asked:6} {used:5} {accuracy:20.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=15.0, help="limit on each of the two runs")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
