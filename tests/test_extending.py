"""The worked examples of docs/extending.md: what one change of a file brings, everywhere."""

import gzip
import json
from pathlib import Path

import pytest

from harness import python
from patched import diffs_in, patched

STORE_0_2 = Path(__file__).parent / "fixtures" / "store_0_2.db.gz"
COLUMN = """
import csv, io, json, math
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import asyncio
import httpx

import fedcell as fc
from fedcell.cli import app as commands
from fedcell.dashboard.app import build_app
from fedcell.dashboard.state import ServerSettings
from typer.testing import CliRunner

spec = fc.Spec(policy="random:k=3", seed=7, rounds=2, task=fc.TaskSpec(hidden=[4]))
records = [next(fc.simulate(spec))]
waits = np.array([0.5, 0.25, 0.0])
records.append(fc.RoundRecord(2, 99.0, 9.0, records[0].plan, records[0].delivered, 0.5, 1.0, plan_wait_s=waits))
spread = records[0].plan.shares.max() / records[0].plan.shares.min()
with fc.Store("old.db") as store:
    before = len(store.runs())
    old = next(run for run in store.runs() if run.status == "done" and run.rounds)
    assert math.isnan(store.get(old.key)[0].spread) is False  # it follows from the plan
    assert np.isnan(store.get(old.key)[0].plan_wait_s).all()
    store.put(spec, records)
    assert len(store.runs()) == before + 1
    first, second = store.get(spec)
    assert (first.spread, second.plan_wait_s.tolist()) == (spread, waits.tolist())
    assert np.isnan(first.plan_wait_s).all()
    key = store.find(spec.key()[:8]).key


def command(*words):
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 0, done.output
    return done.stdout


command("results", "export", "old.db", "--csv", "rounds.csv", "--parquet", "rounds.parquet")
rows = [row for row in csv.DictReader(io.StringIO(Path("rounds.csv").read_text())) if row["key"] == key]
shown = json.loads(command("results", "show", "old.db", key, "--json"))["records"]
table = [row for row in parquet.read_table("rounds.parquet").to_pylist() if row["key"] == key]
app, _, state = build_app(ServerSettings(Path("old.db"), workers=1))


async def asked(path):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        answer = await client.get(f"/api/runs/{key}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


api, drawn = asyncio.run(asked("")), asyncio.run(asked("/rounds/2"))
state.close()
print(json.dumps({
    "spread": spread,
    "csv": [float(row["spread"]) for row in rows],
    "csv columns": list(rows[0]),
    "json": [(row["spread"], row["plan_wait_s"]) for row in shown],
    "parquet": [(row["spread"], row["plan_wait_s"]) for row in table],
    "parquet columns": list(table[0]),
    "api": [dict(zip(api["columns"], row))["spread"] for row in api["rows"]],
    "round": drawn["spread"],
    "devices": {device["index"]: device["wait_s"] for device in drawn["devices"] if device["scheduled"]},
    "columns": drawn["columns"],
    "plan": records[0].plan.devices.tolist(),
}))
"""


@pytest.mark.processes
def test_a_column_of_a_rounds_record(tmp_path: Path) -> None:
    """In a file of 0.2, old and new rounds side by side."""
    [diff] = diffs_in("extending.md", "A column of a round's record")
    (tmp_path / "old.db").write_bytes(gzip.decompress(STORE_0_2.read_bytes()))
    found = json.loads(python(patched(diff, tmp_path) + COLUMN, cwd=tmp_path, cold=True))
    spread, waits = found["spread"], [0.5, 0.25, 0.0]
    assert found["csv"] == found["api"] == [spread, spread]
    unknown = [None, None, None]
    assert found["json"] == [[spread, unknown], [spread, waits]]
    assert [row[0] for row in found["parquet"]] == [spread, spread]
    assert found["parquet"][1][1] == waits
    assert found["round"] == spread
    assert found["devices"] == {str(device): wait for device, wait in zip(found["plan"], waits, strict=True)}
    old = ["round", "clock_s", "round_s", "planned_s", "devices", "delivered", "accuracy", "loss", "joules"]
    lists = ["plan_devices", "plan_shares", "plan_delivered", "plan_joules", "plan_starts_s"]
    assert [name for name in found["csv columns"] if name in old] == old
    assert [name for name in found["parquet columns"] if name in (*old, *lists)] == [*old, *lists]
    described = [(one["name"], one["unit"], one["per_device"]) for one in found["columns"]]
    assert {("spread", "", False), ("wait_s", "s", True)} < set(described)  # beside those of the plan's decisions
