"""A field is declared once: options, help, TOML, the API, the command of a race and the docs' table follow."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedcell as fc
from fedcell.fields import About
from fedcell.sim.spec_fields import all_fields, in_words
from fields import PAGE, page_with_tables

ROOT = Path(__file__).parents[2]
TRIED = """
import json, sys
import fedcell as fc
from fastapi.testclient import TestClient
from fields import tables
from typer.testing import CliRunner
from fedcell.cli import app
from fedcell.dashboard.info import FormField, _fields
from fedcell.runs.race_report import race_command
from fedcell.runs.race import default_race, race_spec
from fedcell.sim.spec import parse_spec
from fedcell.sim.spec_fields import in_words

def asked(*words):
    done = CliRunner().invoke(app, ["race", *words])
    return done.output or str(done.exception)

race = default_race()
changed = race_spec(race.changed({"cell.antenna_gain_db": 6.0}, race.grid))
command, toml = race_command(changed, 0.8)
print(json.dumps({
    "help": asked("--help"),
    "option": asked("--antenna-gain-db", "6", "--print-spec"),
    "bound": asked("--antenna-gain-db", "-1", "--print-spec"),
    "command": [command, toml],
    "again": changed == race_spec(parse_spec(__import__("tomllib").loads(changed.to_toml()), "again")),
    "form": [one.model_dump() for one in _fields() if one.path == "cell.antenna_gain_db"],
    "words": in_words(changed, 5),
    "table": tables(),
    "keys": [fc.Spec().key(), changed.runs()[0].key() == race.runs()[0].key()],
    "doc": fc.Cell.__doc__,
}))
"""


def test_the_tables_of_the_docs_are_those_of_the_fields() -> None:
    page = PAGE.read_text("utf-8")
    assert page == page_with_tables(page), "run `make fields`"


def test_every_field_of_a_document_is_declared() -> None:
    document = fc.Spec().model_dump(exclude={"grid", "version"})
    paths = [f"{a}.{b}" for a, part in document.items() if isinstance(part, dict) for b in part]
    assert {one.path for one in all_fields()} == {*paths, *(a for a in document if not isinstance(document[a], dict))}
    options = [one.about.option for one in all_fields() if one.about.option]
    assert len(set(options)) == len(options) == 30
    assert all(one.about.help.endswith(".") and len(one.about.help) < 320 for one in all_fields())


def test_a_line_says_what_is_not_at_its_default() -> None:
    assert in_words(fc.Spec(), 1) == "20 devices · 1400 m · 3 MHz · mnist labels:2 · 450 s · 1 seed"
    devices = fc.Devices(count=2, compute_w=[1.0, 2.0], failure=0.1, mobility="static")
    spec = fc.Spec(rounds=3, budget_j=7.5, explore=False, devices=devices, cell=fc.Cell(bandwidth_hz=5e6))
    assert in_words(spec, 2) == (
        "2 devices · 1400 m · 5 MHz · no explore · compute w 1.0, 2.0 · mobility static · failure 0.1 · "
        "mnist labels:2 · 3 rounds · 7.5 J · 2 seeds"
    )


def test_about_needs_nothing_but_help() -> None:
    assert (About("A.").option, About("A.").label, About("A.").since) == ("", "", "0.1")


@pytest.mark.processes
def test_a_field_is_these_lines_of_the_docs_and_no_others(tmp_path: Path) -> None:
    """They are put into a copy of the source; nothing else is edited."""
    block = re.search(
        r"```python title=\"in the class Cell.*?\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL
    )
    assert block is not None
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "src/fedcell/world/cell.py"
    source.write_text(
        source.read_text().replace("    channel: Annotated[\n", f"{block[1]}    channel: Annotated[\n", 1)
    )
    paths = os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tools")])
    run = subprocess.run(
        [sys.executable, "-c", TRIED],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert "--antenna-gain-db FLOAT" in found["help"]
    assert "Antenna gain, in dB (default: 0)." in " ".join(found["help"].split())
    assert "antenna_gain_db = 6.0" in found["option"]
    assert "cell.antenna_gain_db is -1.0; give a finite number of at least 0" in found["bound"]
    assert found["command"] == ["fedcell race --antenna-gain-db 6", None]
    assert found["again"]
    (form,) = found["form"]
    assert (form["label"], form["unit"], form["least"], form["default"]) == ("antenna gain", "dB", 0.0, "0")
    assert " · antenna gain 6 dB · " in found["words"]
    row = "| `antenna_gain_db` | 0 | at least 0 | `--antenna-gain-db` | 0.3 | Antenna gain, in dB. |"
    assert row in found["table"].splitlines()
    assert found["keys"] == [fc.Spec().key(), False]
    assert "        antenna_gain_db: Antenna gain, in dB.\n" in found["doc"]
