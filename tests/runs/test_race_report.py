"""What the picture of a race and its headline say is what the statistics say."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

import fedcell as fc
from fedcell.runs import race_report, stats
from fedcell.runs.race import RaceResult
from fedcell.runs.records import Rounds

SEEDS = 8
"""With three policies fewer than seven show nothing."""
BEHIND = {"diverse": 1.0, "optimal": 1.9, "greedy:theta=0": 2.5}


def result(behind: dict[str, float], seeds: int, spoiled: float = 0.0) -> RaceResult:
    """A race in which each policy takes so many times as long to 80 % as the first one."""
    rng = np.random.default_rng(0)
    times_s = 20.0 + 10.0 * rng.random(seeds)
    spec = fc.Spec(budget_s=200.0, grid={"policy": list(behind), "seed": list(range(seeds))})
    made = RaceResult(spec, list(behind), list(range(seeds)), {}, True, 0.8)
    vars(made)["rounds"] = {
        policy: [
            Rounds(np.array([5.0, t]), np.array([5.0, t - 5.0]), np.array([3.0, 3.0]), np.array([0.3, 0.9]))
            for t in factor * times_s * np.exp(spoiled * rng.normal(size=seeds))
        ]
        for policy, factor in behind.items()
    }
    return made


def headline(race: RaceResult) -> str:
    said = race.headline()
    return "" if said is None else said.text


def test_the_leader_is_compared_with_the_papers_policy_or_the_next() -> None:
    assert headline(result(BEHIND, SEEDS)) == "diverse reaches 80 % 2.5 x sooner than greedy:theta=0"
    assert headline(result({"diverse": 1.0, "all": 3.0, "optimal": 1.9}, SEEDS)).endswith("1.9 x sooner than optimal")


def test_arrow_rings_names_and_headline_have_one_number_for_each_policy() -> None:
    race = result(BEHIND, SEEDS)
    drawn, said = race_report.finish(race), race.headline()
    assert said is not None
    one = said.found
    assert one is not None
    assert (drawn.first, drawn.other, drawn.sooner) == ("diverse", "greedy:theta=0", f"{one.ratio.value:.1f} x sooner")
    assert drawn.places["diverse"] == one.mean
    assert drawn.places["greedy:theta=0"] == one.other_mean
    assert drawn.places["greedy:theta=0"] / drawn.places["diverse"] == pytest.approx(one.ratio.value)
    assert drawn.reached == {policy: f"{place:.0f} s" for policy, place in drawn.places.items()}
    assert drawn.words == "mean time to 80 %:"
    (ax,) = race.figure().axes
    words = [text.get_text() for text in ax.texts]
    assert {"2.5 x sooner than greedy:theta=0", f"diverse:  {drawn.reached['diverse']}", drawn.words} <= set(words)
    (dots,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert np.array_equal(dots.get_xydata(), [[one.mean, 80.0], [one.other_mean, 80.0]])


def test_the_picture_says_it_only_if_it_is_sure() -> None:
    for unsure in (result(BEHIND, 4), result(BEHIND, SEEDS, spoiled=3.0)):
        assert race_report.finish(unsure).sooner == ""
    assert headline(result(BEHIND, 4)) == "diverse leads greedy:theta=0 by 2.5 x to 80 %; 4 seeds cannot tell"


def test_seeds_that_never_get_there_stand_beside_the_name() -> None:
    race = result({"diverse": 1.0, "greedy": 9.0}, SEEDS)  # the budget is 200 s
    for run in race.rounds["greedy"][:3]:
        run.accuracy[:] = 0.1
    drawn = race_report.finish(race)
    assert drawn.reached["greedy"].endswith(" s (5/8)")
    assert drawn.words == "mean time to 80 %\n(never counts as 200 s):"
    for run in race.rounds["greedy"]:
        run.accuracy[:] = 0.1
    assert race_report.finish(race).reached["greedy"] == "never"
    assert "greedy" not in race_report.finish(race).places


def test_nothing_is_said_where_nobody_is_ahead() -> None:
    for race in (result({"all": 1.0}, 4), result({"all": 1.0, "diverse": 1.02}, 4)):
        assert headline(race) == ""
    assert race_report.finish(result(BEHIND, 6), "energy").sooner == ""


def test_a_picture_without_any_round_says_so(recwarn: pytest.WarningsRecorder) -> None:
    race = result({"all": 1.0, "diverse": 1.0}, 2)
    vars(race)["rounds"] = {policy: [Rounds.of([])] * 2 for policy in race.policies}
    figure = race.figure()
    figure.draw_without_rendering()
    (ax,) = figure.axes
    assert (ax.get_xlim(), ax.get_ylim()) == ((0.0, 200.0), (0.0, 100.0))
    words = {text.get_text() for text in ax.texts}
    assert {"no round fits into the budget", "all:  no round"} <= words
    assert not recwarn.list


@pytest.mark.parametrize("seeds", [1, stats.FEWEST_IN_A_BAND - 1, stats.FEWEST_IN_A_BAND])
def test_bands_are_drawn_of_enough_seeds(seeds: int) -> None:
    race = result(BEHIND, seeds)
    enough = seeds >= stats.FEWEST_IN_A_BAND
    assert all(np.isfinite(curve.half).all() == enough for curve in race_report.curves(race))
    assert ("95 % bands" in race_report.title(race)) == enough


def test_bands_are_students_95_percent() -> None:
    race = result(BEHIND, 5)
    for runs, curve in zip(race.rounds.values(), race_report.curves(race), strict=True):
        end = max(float(run.clock_s[-1]) for run in runs)
        for moment in (6.0, 30.0, end):
            values = [float(run.accuracy[np.searchsorted(run.clock_s, moment, side="right") - 1]) for run in runs]
            half = scipy_stats.t.ppf(0.975, 4) * scipy_stats.sem(values)
            assert curve.half[np.searchsorted(curve.x, moment, side="right") - 1] == pytest.approx(half)
