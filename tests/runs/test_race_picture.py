"""What the picture of a race and its headline say is what the statistics say."""

import numpy as np
import pytest

import fedcell as fc
from fedcell.runs import race_picture, stats
from fedcell.runs.race import RaceResult
from fedcell.runs.rows import Rounds

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


def test_the_leader_is_compared_with_the_papers_policy_or_the_next() -> None:
    assert race_picture.headline(result(BEHIND, 6)) == (
        "diverse reaches 80 % 2.50 x sooner than greedy:theta=0 (6 seeds in which both do, paired, "
        "95 % interval 2.50 to 2.50)"
    )
    others = {"diverse": 1.0, "all": 3.0, "optimal": 1.9}
    assert "1.90 x sooner than optimal (" in race_picture.headline(result(others, 6))


def test_the_picture_says_it_only_if_it_is_sure() -> None:
    sure, unsure = result(BEHIND, 6), result(BEHIND, 4, spoiled=1.5)
    drawn = race_picture.finish(sure)
    assert (drawn.first, drawn.other, drawn.sooner) == ("diverse", "greedy:theta=0", "2.5 x sooner")
    assert drawn.reached == {policy: one.to_target.text() for policy, one in sure.summaries().items()}
    assert race_picture.finish(unsure).sooner == ""
    assert race_picture.headline(unsure).endswith(": not significant")
    words = [text.get_text() for text in sure.figure().axes[0].texts]
    assert "2.5 x sooner than greedy:theta=0" in words
    assert f"diverse:  {drawn.reached['diverse']}" in words


def test_nothing_is_said_where_nobody_is_ahead() -> None:
    for race in (result({"all": 1.0}, 4), result({"all": 1.0, "diverse": 1.02}, 4)):
        assert race_picture.headline(race) == ""
    assert race_picture.finish(result(BEHIND, 6), "energy").sooner == ""


@pytest.mark.parametrize("seeds", [1, stats.FEWEST_IN_A_BAND - 1, stats.FEWEST_IN_A_BAND])
def test_bands_are_drawn_of_enough_seeds(seeds: int) -> None:
    race = result(BEHIND, seeds)
    enough = seeds >= stats.FEWEST_IN_A_BAND
    assert all(np.isfinite(curve.half).all() == enough for curve in race_picture.curves(race))
    assert ("95 % bands" in race_picture.title(race)) == enough
