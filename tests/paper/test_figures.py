"""Every figure end to end with tiny settings, the runs in this process."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedcell.errors import InputError
from fedcell.paper import FIGURES, GROUPS, chosen, make_figure
from fedcell.paper.output import Output, Section, page, section
from fedcell.paper.settings import Settings, gather, within
from fedcell.plots import save_picture
from fedcell.runs.records import Rounds
from fedcell.sim.loop import simulate
from fedcell.sim.spec import Spec
from twins.small import write_small_npz

# notes.md's table of the paper's printed figures, by hand: what the report must show.
PRINTED = {
    "table1": "123.127 -0.0448 103.783 -0.0367 89.154 0.00934 63.919 0.139 27.773 0.941",
    "fig2": "68.2 77.6 82.7 90.4 97.4",
    "fig3a": "171 224 89.85 14.8 7.47 2.35 3.28",
    "fig3b": "75",
    "fig3c": "8.31 12.07 7.65 22.72",
}
# Half the work of --quick: every figure still has all its runs, of a few rounds each.
SETTINGS = replace(
    Settings.quick(2), rounds=3, samples=100, devices_budget_s=4.0, race_budget_s=6.0, radius_budget_s=5.0
)
PAPER_MODEL_BITS = 32 * 50_890


class Runs:
    """The runs that were asked for, as long, but of a model of 4 hidden units, tested with 200 digits, not 10,000."""

    def __init__(self, digits: Path) -> None:
        self.kept: dict[str, Rounds] = {}
        self.small = {"task.data": str(digits), "task.hidden": [4], "cell.model_bits": PAPER_MODEL_BITS}

    def __call__(self, specs: Sequence[Spec]) -> dict[str, Rounds]:
        for spec in specs:
            if spec.key() not in self.kept:
                self.kept[spec.key()] = Rounds.of_records(simulate(spec.changed(self.small), threads=1))
        return {spec.key(): self.kept[spec.key()] for spec in specs}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    write_small_npz(path, train=3000)
    return path


@pytest.fixture(scope="module")
def outputs(digits: Path) -> dict[str, Output]:
    runs = Runs(digits)
    one_cell = replace(SETTINGS, cells=1)  # Auto's four figures have many runs a cell
    return {name: make_figure(name, one_cell if name in GROUPS["auto"] else SETTINGS, runs) for name in FIGURES}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_whole(name: str, outputs: dict[str, Output], tmp_path: Path) -> None:
    output = outputs[name]
    assert output.name == name
    headings, rows = output.csv
    assert rows
    assert all(len(row) == len(headings) for row in rows)
    assert all(len(row) == len(table.headings) for table in output.tables for row in table.rows)
    assert (output.figure is None) == (name == "variants")
    if output.figure is not None:
        for ending in ("png", "svg"):
            save_picture(output.figure, tmp_path / f"picture.{ending}")
            assert (tmp_path / f"picture.{ending}").stat().st_size > 5000


def kept(outputs: Iterable[Output], settings: Settings = SETTINGS) -> list[Section]:
    """As they are read again from their files."""
    return [Section.from_json(section(output, settings, "fedcell reproduce")) for output in outputs]


@pytest.mark.parametrize("name", PRINTED)
def test_every_printed_number_stands_beside_ours(name: str, outputs: dict[str, Output]) -> None:
    assert [line.printed for line in outputs[name].printed] == PRINTED[name].split()
    html = page(kept([outputs[name]]), {})
    for number in PRINTED[name].split():
        assert re.search(rf"<td class=number>{re.escape(number)}[ <]", html), number


def test_every_claim_of_the_paper_is_judged(outputs: dict[str, Output]) -> None:
    claims = [claim for output in outputs.values() for claim in output.claims]
    said = " ".join(claim.text for claim in claims)
    for words in (
        "Proposed beats Random-opt",
        "Proposed beats CL-low",
        "Proposed beats CL-high",
        "Proposed beats PF",
        "171 s against 224 s",
        "8.31 devices in 12.07 s",
        "shrinks with the radius",
        "PF resembles Random-opt in small cells",
        "latency bounds",
        "More devices help more on less iid data",
    ):
        assert words in said
    html = page(kept(outputs.values(), Settings(seeds=3)), {})
    assert all(f">{claim.verdict}<" in html for claim in claims)
    tried = page(kept(outputs.values()), {})
    assert tried.count(">tried<") == len(claims)
    assert ">confirmed<" not in tried


def test_the_page_is_self_contained(outputs: dict[str, Output]) -> None:
    html = page(kept(outputs.values()), {"fig2": b"png"})
    assert "data:image/png;base64,cG5n" in html
    assert not re.search(r"<script|<link|https?://|src=\"(?!data:)|@import|url\(", html)
    assert "the results mean nothing: Fig. 1(a)" in html  # reduced settings are named
    assert "mean nothing" not in page(kept([outputs["fig1a"]], Settings(seeds=3)), {})


def test_a_figure_is_kept_whole(outputs: dict[str, Output]) -> None:
    for output, one in zip(outputs.values(), kept(outputs.values()), strict=True):
        assert repr(one.output.printed) == repr(output.printed)  # NaN is not equal to itself
        assert (one.output.claims, one.output.notes, one.output.title) == (output.claims, output.notes, output.title)
        assert [(t.title, [list(r) for r in t.rows]) for t in one.output.tables] == [
            (t.title, [list(r) for r in t.rows]) for t in output.tables
        ]


def test_figures_share_their_runs(digits: Path) -> None:
    shared = Runs(digits)
    make_figure("fig2", SETTINGS, shared)
    before = len(shared.kept)
    gather(shared, {k: SETTINGS.without_budget(f"random:k={k}", "L=1") for k in (4, 8)}, 2)  # as Table I asks for them
    assert len(shared.kept) == before


def test_a_run_cut_short_is_the_run_of_the_smaller_budget(digits: Path) -> None:
    """Fig. 3(d) takes the first seconds of Fig. 3(a)'s runs: no policy knows the budget."""
    runs = Runs(digits)
    long, short = (SETTINGS.in_cell("greedy:theta=0", "L=2", 600.0, budget_s) for budget_s in (20.0, 9.0))
    found = runs([long, short])
    (cut,) = within([found[long.key()]], 9.0)
    alone = found[short.key()]
    assert 1 <= len(cut) < len(found[long.key()])
    assert [cut.clock_s.tolist(), cut.accuracy.tolist()] == [alone.clock_s.tolist(), alone.accuracy.tolist()]


def test_figures_are_chosen_in_the_papers_order() -> None:
    assert chosen(["fig3d", "fig1a"]) == ["fig1a", "fig3d"]
    assert chosen(["all"]) == chosen([])
    assert chosen(["auto", "all"]) == list(FIGURES)
    assert chosen(["auto"]) == ["auto-times", "auto-accuracy", "auto-decisions", "auto-hindsight"]  # hours: not of all
    assert set(chosen(["all"])) == set(FIGURES) - set(chosen(["auto"]))
    with pytest.raises(InputError, match=r"no figure 'fig3e'; did you mean 'fig3"):
        chosen(["fig3e"])
