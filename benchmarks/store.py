"""A results file of 100,000 runs listed, filtered, ranked and exported: python benchmarks/store.py [--old COMMIT].

The runs are made by the file's schema: twenty policies, twenty radii and 250 seeds, ten rounds each of eight devices. A
tournament of 20 policies, 14 scenarios and 20 seeds is ranked, which is about the standard one. What the dashboard
answers is asked of its routes, without a network. Another file, of long runs of 20 devices, is exported to Parquet.

An old commit, in a git worktree, and this tree each have a copy of both files, which the old one made, and are
measured one after the other, again and again; what counts is the least CPU time, for the machine may be busy.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.trees import ROOT, old_tree, printed

OLD = "cf3f370"
MAKE = """
import hashlib, json, sqlite3, sys, time

import numpy as np

import fedcell as fc
from fedcell.runs.contest import Scenario, Tournament, save_tournament
from fedcell.runs.records import COLUMNS, FIRST_COLUMNS, encode
from fedcell.runs.store import Store, stored_document
from fedcell.schedule.plan import Plan
from fedcell.sim.record import RoundRecord

path, seeds, rounds, devices = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
policies = ["all", "diverse", "greedy", "optimal", *(f"random:k={k}" for k in range(1, 17))]
radii = [100.0 * (i + 1) for i in range(20 if seeds > 1 else 1)]
rng = np.random.default_rng(0)
names = [one.name for one in COLUMNS if one.name in FIRST_COLUMNS]


def key(policy, radius, seed):
    return hashlib.sha256(f"{policy} {radius} {seed}".encode()).hexdigest()


def row(number):
    plan = Plan(np.arange(devices), rng.dirichlet(np.ones(devices)), 9.0, rng.uniform(0.0, 9.0, devices))
    joules, (accuracy, loss) = rng.uniform(0.0, 1.0, devices), rng.uniform(0.1, 0.9, 2)
    record = RoundRecord(number, 10.0 * number, 10.0, plan, plan.devices, accuracy, loss, joules.sum(), joules)
    return [value for one, value in zip(COLUMNS, encode(record)) if one.name in FIRST_COLUMNS]


rows = [[row(number) for number in range(1, rounds + 1)] for _ in range(200)]
Store(path).close()
db = sqlite3.connect(path, isolation_level=None)
db.execute("BEGIN")
marks = ", ".join("?" * (1 + len(names)))
for policy in policies:
    for radius in radii:
        document = stored_document(fc.Spec(policy=policy, cell=fc.Cell(radius_m=radius)))
        for seed in range(seeds):
            own = key(policy, radius, seed)
            db.execute("INSERT INTO specs VALUES (?, ?)", (own, json.dumps(document | {"seed": seed})))
            run = (own, "done", "", 1.7e9 + rng.uniform(0.0, 1e6), 1.0, "simulation")
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", run)
            told = ((own, *one) for one in rows[rng.integers(len(rows))])
            db.executemany(f"INSERT INTO rounds (key, {', '.join(names)}) VALUES ({marks})", told)
db.execute("COMMIT")
db.close()
scenarios = [Scenario(f"{r:g} m", "", 0.8, fc.Spec(rounds=rounds, cell=fc.Cell(radius_m=r))) for r in radii[:14]]
wanted = Tournament(scenarios, policies, list(range(min(seeds, 20))))
with Store(path) as store:
    save_tournament(store, wanted, {entry: key(entry[1], 100.0 * (1 + names.index(entry[0])), entry[2])
        for names in [[one.name for one in scenarios]] for entry in wanted.entries()})
"""
MEASURE = """
import asyncio, json, os, resource, sqlite3, subprocess, sys, time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

path, big = sys.argv[1:]
found = {}


def timed(name, began):
    found[name] = time.process_time() - began


def command(name, *words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "fedcell", "results", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found[name] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


from fedcell.runs.store import Store

began = time.process_time()
with Store(path) as store:
    timed("open for writing", began)
    began = time.process_time()
    assert len(store.runs()) >= 0
    timed("Store.runs(): all of them", began)

command("fedcell results list --policy greedy --where radius_m=500 --seed 7", "list", path, "--policy", "greedy",
    "--where", "radius_m=500", "--seed", "7")
command("fedcell results list --csv", "list", path, "--csv")
command("fedcell results export --parquet, the long runs", "export", big, "--parquet", f"{big}.parquet")

from fedcell.dashboard.app import build_app
from fedcell.dashboard.state import ServerSettings

app, _, state = build_app(ServerSettings(Path(path), workers=1))


async def get(name, place, **query):
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": place, "raw_path": place.encode(), "query_string": urlencode(query).encode(), "headers": [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
    }
    sent = []

    async def receive():
        await asyncio.sleep(3600)

    async def send(message):
        sent.append(message)

    async def asked():
        async def once():
            return {"type": "http.request", "body": b"", "more_body": False}
        await app(scope, once, send)

    began = time.process_time()
    await asked()
    timed(name, began)
    assert sent[0]["status"] == 200, sent
    return json.loads(b"".join(one.get("body", b"") for one in sent))


async def main():
    await get("the dashboard's first page, when the server has begun", "/api/runs")
    await get("another page", "/api/runs", offset=5000)
    await get("sorted by best accuracy", "/api/runs", sort="-best")
    await get("sorted by what differs", "/api/runs", sort="differs")
    await get("of one policy, by best accuracy", "/api/runs", sort="-best", policy="greedy")
    await get("the sweep's mean accuracies by policy and radius", "/api/means", across="cell.radius_m")
    with closing(sqlite3.connect(path)) as db:
        now = time.time()
        db.execute("UPDATE runs SET finished_unix_s = ? WHERE key = (SELECT min(key) FROM runs)", (now,))
        db.commit()
    await get("the first page after a run has ended", "/api/runs")
    (one,) = (await get("the tournaments", "/api/tournaments"))["tournaments"]
    await get("a tournament of 5,600 runs ranked", f"/api/tournaments/{one['id']}")
    await get("the same by best accuracy", f"/api/tournaments/{one['id']}", by="best")


asyncio.run(main())
state.close()
found["peak memory, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=OLD, help="a commit to compare with (default %(default)s)")
    parser.add_argument("--only-new", action="store_true", help="measure this tree alone")
    parser.add_argument("--seeds", type=int, default=250, help="of each policy and radius (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=6_000, help="of each of twenty long runs (default %(default)s)")
    parser.add_argument("--turns", type=int, default=2)
    chosen = parser.parse_args()
    with old_tree(chosen.old) as old:
        folder = old.parent
        files = [folder / name for name in ("many.db", "long.db")]
        printed(old, MAKE, str(files[0]), str(chosen.seeds), "10", "8")
        printed(old, MAKE, str(files[1]), "1", str(chosen.rounds), "20")
        sizes = [f"{file.stat().st_size / 1e6:,.0f} MB" for file in files]
        print(f"{400 * chosen.seeds:,} runs in {sizes[0]}; long runs of {20 * chosen.rounds:,} rounds in {sizes[1]}")
        least: dict[Path, dict[str, float]] = {}
        for turn in range(chosen.turns):
            for tree in [ROOT] if chosen.only_new else [old, ROOT]:
                copies = [file.with_suffix(f".{tree.name}.{turn}.db") for file in files]
                for file, copy in zip(files, copies, strict=True):
                    shutil.copyfile(file, copy)
                found = json.loads(printed(tree, MEASURE, *map(str, copies)).splitlines()[-1])
                before = least.get(tree, found)
                least[tree] = {name: min(value, before[name]) for name, value in found.items()}
                for copy in folder.glob(f"*.{tree.name}.{turn}.db*"):
                    copy.unlink()
        for name, now in least[ROOT].items():
            then = least.get(old, least[ROOT])[name]
            print(f"{name:70} {chosen.old} {then:7.3f}   now {now:7.3f}   ratio {then / now:6.1f}")


if __name__ == "__main__":
    main()
