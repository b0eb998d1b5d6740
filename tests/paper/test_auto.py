"""The proof of Auto: which cells, which runs, and what is concluded from runs whose times are known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fedcell.errors import InputError
from fedcell.learn import published
from fedcell.paper import auto, auto_apart
from fedcell.paper.auto import (
    BASELINE,
    CELLS,
    CONTENDERS,
    DIVERSE,
    FIRST_SEED,
    OURS,
    PLAIN,
    AutoCell,
    Time,
    checked_cells,
    chosen_cells,
    spec_of,
    spread,
)
from fedcell.paper.diverse import ROWS
from fedcell.paper.output import Output
from fedcell.paper.settings import Collect, Settings
from fedcell.runs.comparisons import median_ratio
from fedcell.runs.records import Rounds
from fedcell.runs.stats import median_interval
from fedcell.sim.spec import Spec
from fedcell.world import Devices
from twins.small import write_small_npz

SETTINGS = Settings(seeds=10)
PEOPLE = {"wisdm", "wisdm-static", "audio", "audio-static", "writers", "writers-static"}


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever this machine has of Fashion-MNIST."""
    monkeypatch.delenv("FEDCELL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published, "DEBIAN_FOLDER", tmp_path / "nowhere")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of data as FEDCELL_DATA names it: files in it and in directories below."""
    folder = tmp_path / "data"
    names = ("audio/audiomnist-logmel32.npz", "mnist-by-writer.npz", "wisdm/wisdm51-watch-accel.npz")
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_small_npz(folder / name, train=100 + number)
    (folder / "fashion-mnist").mkdir()
    for name in published.PUBLISHED["fashion-mnist"].files:
        (folder / "fashion-mnist" / name.removesuffix(".gz")).touch()
    monkeypatch.setenv("FEDCELL_DATA", str(folder))
    return folder


# --- which runs ----------------------------------------------------------------------------------------------------


def test_the_cells_are_the_papers_race_with_something_changed(data: Path) -> None:
    cells, missing = chosen_cells(SETTINGS)
    assert (list(cells), missing) == (list(CELLS), [])
    specs = {name: spec_of(SETTINGS, cell) for name, cell in cells.items()}
    assert len({spec.key() for spec in specs.values()}) == len({"labels-1", *cells} - {"labels-1-70"})
    race = specs["race"]
    assert (race.cell.radius_m, race.budget_s, race.task.partition, race.devices.count) == (
        1400.0,
        450.0,
        "labels:2",
        20,
    )
    assert all(spec.budget_s == 450.0 for spec in specs.values())
    assert specs["free"].task.partition == "labels:2,mode=free"
    assert specs["wisdm-static"].task.data == str(data / "wisdm" / "wisdm51-watch-accel.npz")
    assert {name for name, spec in specs.items() if spec.task.partition == "natural"} == PEOPLE
    assert [specs[name].devices.count for name in ("wisdm", "audio", "writers")] == [50, 60, 50]
    assert specs["fashion"].task.data == "fashion-mnist"  # by its name: its content is checked


def test_the_fifteen_cells_of_diverse_are_among_them() -> None:
    ours = [(cell.target, cell.fields) for cell in CELLS.values() if not cell.data]
    assert [row for row in ROWS.values() if (row.target, row.fields) not in ours] == []


@pytest.mark.parametrize("ratio", [10.0, 30.0])
def test_speeds_are_spread_evenly_in_the_logarithm_around_the_papers(ratio: float) -> None:
    fields = {name.removeprefix("devices."): value for name, value in spread(ratio).items()}
    devices, usual = Devices(**fields), Devices()
    for times in (
        devices.seconds_per_sample / usual.seconds_per_sample,
        usual.samples_per_second / devices.samples_per_second,
    ):
        assert times.max() / times.min() == pytest.approx(ratio)
        assert np.exp(np.log(times).mean()) == pytest.approx(1.0)
        assert np.diff(np.log(times)) == pytest.approx(math.log(ratio) / 19)


def test_a_cell_whose_data_is_not_there_is_left_out_with_a_sentence(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "wisdm" / "wisdm51-watch-accel.npz").unlink()
    cells, (sentence,) = chosen_cells(SETTINGS)
    assert set(CELLS) - set(cells) == {"wisdm", "wisdm-static"}
    assert sentence.startswith("Left out: wisdm, wisdm-static, for there is no wisdm51-watch-accel.npz; FEDCELL_DATA ")
    monkeypatch.delenv("FEDCELL_DATA")
    cells, sentences = chosen_cells(SETTINGS)
    assert set(CELLS) - set(cells) == PEOPLE | {"fashion", "fashion-static", "fashion-dirichlet-0.3"}
    assert len(sentences) == 4
    monkeypatch.setenv("FEDCELL_DATA", str(data / "nowhere"))
    with pytest.raises(InputError, match="does not exist"):
        chosen_cells(SETTINGS)


def test_cells_are_chosen_by_name() -> None:
    assert checked_cells("iid, race") == ("race", "iid")
    with pytest.raises(InputError, match=r"no cell 'rase'; did you mean 'race'"):
        checked_cells("race,rase")
    assert list(chosen_cells(replace(SETTINGS, only=("iid", "wisdm")))[0]) == ["iid"]


def test_every_decision_is_made_alone_in_every_pair_and_with_all() -> None:
    specs = auto_apart.decision_specs(SETTINGS, {"race": CELLS["race"]})
    assert len(specs) == len({spec.key() for spec in specs.values()}) == 16
    assert {spec.target_accuracy for spec in specs.values()} == {0.8}
    fixed = {key[1:]: set(spec.policy.partition(":")[2].split(",")) - {""} for key, spec in specs.items()}
    assert fixed[0.5, ("who", "work", "bits")] == set()
    assert fixed[0.0, ("who", "work", "bits")] == {"momentum=0"}
    assert fixed[0.0, ("who",)] == {"epochs=1", "bits=32", "momentum=0"}
    assert fixed[0.5, ("work", "bits")] == {"who=paper"}
    assert fixed[0.0, ()] == {"who=paper", "epochs=1", "bits=32", "momentum=0"}


def test_the_grid_has_work_bits_and_our_momentum() -> None:
    specs = auto_apart.grid_specs(SETTINGS, {"race": CELLS["race"]})
    assert len(specs) == len({spec.key() for spec in specs.values()}) == 2 * 6 * 4
    for (_, who, epochs, bits), spec in specs.items():
        task = spec.task
        assert (task.epochs, task.make_compression().bits, spec.policy.split(":")[0]) == (epochs, bits, who.lower())
        weights = "balanced" if who == DIVERSE else "mean"
        aggregator = task.make_aggregator()
        assert (aggregator.name, aggregator.weights) == ("fedavgm", weights)
        assert vars(aggregator)["beta"] == 0.5
        assert spec.budget_s == CELLS["race"].grid_s


# --- what is concluded ---------------------------------------------------------------------------------------------


def reaching(at_s: float, accuracy: float = 0.99) -> Rounds:
    """A run that is at 30 % after a second, has this accuracy at this time, and ends there or at 440 s without."""
    end_s = at_s if math.isfinite(at_s) else 440.0
    there = accuracy if math.isfinite(at_s) else 0.3
    clock_s = np.array([1.0, end_s])
    return Rounds(clock_s, np.diff(clock_s, prepend=0.0), np.full(2, 5.0), np.array([0.3, there]))


class Known:
    """Runs whose time to the target, or last accuracy, is told by a function of the spec."""

    def __init__(self, at_s: Mapping[str, Sequence[float]], last: Mapping[str, float] | None = None) -> None:
        self.at_s, self.last, self.asked = at_s, last or {}, dict[str, Spec]()

    def __call__(self, specs: Sequence[Spec]) -> dict[str, Rounds]:
        self.asked |= {spec.key(): spec for spec in specs}
        return {spec.key(): self._run(spec) for spec in specs}

    def _run(self, spec: Spec) -> Rounds:
        at_s = self.at_s[spec.policy.split(":theta")[0]]
        return reaching(at_s[(spec.seed - FIRST_SEED) % len(at_s)], self.last.get(spec.policy, 0.99))


def claimed(output: Output) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in output.claims}


def policies_of(**at_s: Sequence[float]) -> dict[str, Sequence[float]]:
    names = {"greedy": BASELINE, "diverse": DIVERSE, "auto": OURS, "auto:momentum=0.0": PLAIN}
    specs = auto.time_specs(SETTINGS, {"race": CELLS["race"]})
    return {specs["race", who].policy: at_s[name.partition(":")[0]] for name, who in names.items()}


def times_of(collect: Collect, *cells: str) -> Output:
    return auto.make_times(replace(SETTINGS, only=cells), collect)


def test_seeds_that_never_reach_the_target_count() -> None:
    """Greedy reaches it with 4 of 10 seeds, soon: it is not sooner than who reaches it with all."""
    greedy = [5.0, 5.0, 5.0, 5.0, *[math.inf] * 6]
    known = Known(policies_of(greedy=greedy, diverse=[60.0], auto=[30.0, 20.0]))
    output = times_of(known, "race", "static")
    table, compared = output.tables
    assert [row[2:] for row in table.rows] == [
        ["never (4/10)", "60.0 s [60.0, 60.0]", "25.0 s [20.0, 30.0]", "25.0 s [20.0, 30.0]"]
    ] * 2
    assert {spec.seed for spec in known.asked.values()} == set(range(FIRST_SEED, FIRST_SEED + 10))
    ours, *ratios = compared.rows[0][1:]
    assert ours == "25.0"
    assert ratios[0].startswith(f"{(4 * 5 + 6 * 450) / 10 / 25:.1f} [")
    assert ratios[1].startswith("2.4 [")
    assert ratios[1].endswith(" *")
    claims = claimed(output)
    assert (
        claims["the paper's race, L = 2: at most 1/15 (the least that will do) of Greedy's median time"] == "confirmed"
    )
    assert claims["the paper's race, L = 2: at most 1/20 of Greedy's median time"] == "not confirmed"
    assert claims["devices that stay: all seeds reach the target, at the median within 12 s"] == "not confirmed"
    assert claims["Auto is nowhere significantly later than Greedy"] == "confirmed"
    (evidence,) = (claim.evidence for claim in output.claims if "1/20" in claim.text)
    assert "never (4/10): 0.056" in evidence
    assert "never counts as 450 s" in evidence
    assert output.csv[1][0][3] == math.inf


@pytest.mark.parametrize(("greedy_s", "auto_s", "verdict"), [(160.0, 8.0, "confirmed"), (160.0, 8.1, "not confirmed")])
def test_a_goal_is_met_at_its_share_and_not_above(greedy_s: float, auto_s: float, verdict: str) -> None:
    output = times_of(Known(policies_of(greedy=[greedy_s], diverse=[60.0], auto=[auto_s])), "race")
    assert claimed(output)["the paper's race, L = 2: at most 1/20 of Greedy's median time"] == verdict


def test_who_never_reaches_the_target_meets_no_goal() -> None:
    never = [math.inf]
    output = times_of(Known(policies_of(greedy=never, diverse=never, auto=never)), "race", "free-static")
    claims = claimed(output)
    assert claims["the paper's race, L = 2: at most 1/20 of Greedy's median time"] == "not confirmed"
    assert claims["L = 2, free, static: all seeds reach the target"] == "not confirmed"


def test_where_it_loses_is_said() -> None:
    later = [100.0 + one for one in range(10)]
    output = times_of(Known(policies_of(greedy=[50.0], diverse=[200.0], auto=later)), "iid")
    claims = {claim.text: claim for claim in output.claims}
    lost = claims["Auto is nowhere significantly later than Greedy"]
    assert (lost.verdict, lost.evidence) == ("not confirmed", "Sooner in 0 of 1 cells; later in: i.i.d..")
    assert claims["Auto is nowhere significantly later than Diverse"].verdict == "confirmed"


def test_accuracies_are_compared_when_the_time_is_up() -> None:
    at_s = policies_of(greedy=[400.0], diverse=[400.0], auto=[300.0])
    last = dict(zip(at_s, (0.83, 0.89, 0.92, 0.80), strict=True))
    output = auto.make_accuracy(replace(SETTINGS, only=("race", "iid")), Known(at_s, last))
    assert output.tables[1].rows[0][1:] == ["+6.0 ± 0.0 *", "+9.0 ± 0.0 *", "-3.0 ± 0.0 *"]
    claims = claimed(output)
    assert claims["the paper's race, L = 2: Auto ends at least 6 points higher than Greedy"] == "confirmed"
    assert claims["Auto does not end lower than Greedy anywhere"] == "confirmed"
    lower = auto.make_accuracy(replace(SETTINGS, only=("race",)), Known(at_s, last | {list(at_s)[2]: 0.82}))
    assert claimed(lower)["Auto does not end lower than Greedy anywhere"] == "not confirmed"


def test_the_best_of_the_grid_is_what_auto_is_measured_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(spec: Spec) -> Rounds:
        if spec.policy == "auto":
            return reaching(6.5)
        good = spec.policy.startswith("greedy") and spec.task.epochs == 0.03 and "bits=4" in spec.task.compression
        return reaching(5.0 if good else math.inf if spec.task.epochs == 2 else 20.0)

    def collect(specs: Sequence[Spec]) -> dict[str, Rounds]:
        return {spec.key(): run(spec) for spec in specs}

    output = auto_apart.make_hindsight(replace(SETTINGS, only=("race",)), collect)
    (row,) = output.tables[0].rows
    assert row[3] == "5.0 s [5.0, 5.0]: 0.03 epochs, 4 bits"
    assert row[4].startswith("20.0 s [20.0, 20.0]: ")
    assert row[5] == "1.30"
    assert output.tables[1].rows[0][:5] == ["Greedy", "0.03", "4", "1.00", "1.00"]
    assert claimed(output) == {
        "Auto is within 1.3 times of the best of the grid in each cell": "confirmed",
        "Auto is within 1.15 times of the best of the grid on average": "not confirmed",
    }
    monkeypatch.setattr(auto_apart, "GRID_CELL", 1.29)
    strict = auto_apart.make_hindsight(replace(SETTINGS, only=("race",)), collect)
    assert strict.claims[0].evidence.startswith("Beyond it in: the paper's race, L = 2 (1.30), of 1")


def test_the_ablation_says_whether_nothing_decided_is_the_papers_policy() -> None:
    def collect(specs: Sequence[Spec]) -> dict[str, Rounds]:
        return {
            spec.key(): reaching(9.0 if "who" not in spec.policy and "auto" in spec.policy else 90.0) for spec in specs
        }

    output = auto_apart.make_decisions(replace(SETTINGS, only=("race",)), collect)
    without, with_momentum = output.tables
    assert [row[0] for row in without.rows] == [
        "nothing", "who", "work", "bits", "who + work", "who + bits", "work + bits", "all",
    ]  # fmt: skip
    assert [row[1].split()[0] for row in without.rows] == ["90.0", "9.0", "90.0", "90.0", "9.0", "9.0", "90.0", "9.0"]
    assert with_momentum.title.endswith("server momentum 0.5")
    assert "in 1 of 1 cells" in output.notes[0]


# --- the statistics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 10, 11, 30])
def test_the_interval_of_a_median_is_the_binomial_one(n: int) -> None:
    values = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    low, high = median_interval(values.tolist())
    below = int(scipy_stats.binom.ppf(0.025, n, 0.5))  # the least k with P[B <= k] at least 2.5 %
    assert (low, high) == (below, n + 1 - below)
    assert 1.0 - 2.0 * scipy_stats.binom.cdf(low - 1, n, 0.5) >= 0.95
    assert median_interval([1.0] * 4 + [math.inf] * (n - 4))[1] == math.inf


def test_of_few_seeds_there_is_no_interval() -> None:
    assert all(map(math.isnan, median_interval([1.0, 2.0, 3.0, 4.0, 5.0])))
    assert Time.of([reaching(3.0)] * 5, 0.8).text() == "3.0 s"


def test_the_ratio_of_medians_counts_the_limit_for_never_and_is_paired() -> None:
    ours = [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0]
    ratio = median_ratio(ours, [10.0 * one for one in ours], 450.0)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.1, 0.1, 0.1))  # whichever seeds are drawn
    assert median_ratio(ours, [math.inf] * 7, 450.0).value == pytest.approx(11.0 / 450.0)
    spread_out = median_ratio([5.0, 10.0, 20.0, 40.0, 80.0, 90.0], [100.0] * 6, 450.0)
    assert spread_out.low < spread_out.value == 0.3 < spread_out.high


def test_a_cell_with_a_name_of_its_own_is_drawn_too() -> None:
    cell = AutoCell("a_cell $x$")
    times = {("x", who): Time([1.0, math.inf], math.inf, math.nan, math.nan) for who in CONTENDERS}
    assert (
        auto.dots_of(times, {"x": cell}, list(CONTENDERS), 450.0).axes[0].get_yticklabels()[0].get_text() == cell.title
    )
