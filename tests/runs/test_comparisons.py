"""Who is sooner than whom, against SciPy and brute force; failures count, and few seeds tell nothing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from builders import rounds_of
from fedcell.runs import comparisons, stats
from fedcell.runs.records import Rounds

LIMIT_S = 100.0
NEVER = math.inf
SCORES = st.lists(st.floats(-100.0, 100.0).map(lambda x: round(x, 1)), min_size=1, max_size=12)


def reaching(*seconds: float, last: float = 0.9, else_: float = 0.3) -> list[Rounds]:
    """Runs that reach 80 % after so many seconds, and end there; infinity for never."""
    return [
        rounds_of((5.0, 0.2), (seen, last), joules=1.0) if math.isfinite(seen) else rounds_of((5.0, 0.2), (90.0, else_))
        for seen in seconds
    ]


@given(SCORES)
def test_the_sign_flip_test_is_that_of_all_signs(differences: list[float]) -> None:
    found = abs(sum(differences))
    signs = itertools.product((-1, 1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(one, differences, strict=True))) for one in signs]
    assert comparisons.sign_flip_p(differences) == pytest.approx(sum(s >= found - 1e-6 for s in sums) / len(sums))


def test_the_sign_flip_test_is_scipys() -> None:
    rng = np.random.default_rng(1)
    for n in (6, 9, 13):
        values = rng.normal(0.4, 1.0, n)
        theirs = scipy_stats.permutation_test(
            (values, np.zeros(n)), lambda a, b, axis: (a - b).mean(axis=axis),
            permutation_type="samples", n_resamples=np.inf, vectorized=True,
        )  # fmt: skip
        assert comparisons.sign_flip_p(values.tolist()) == pytest.approx(theirs.pvalue)


def test_of_many_differences_signs_are_drawn_and_agree_with_students_t() -> None:
    values = np.random.default_rng(2).normal(0.3, 1.0, 60)
    drawn, exact = comparisons.sign_flip_p(values.tolist()), scipy_stats.ttest_1samp(values, 0.0).pvalue
    assert drawn == comparisons.sign_flip_p(values.tolist())
    assert drawn == pytest.approx(exact, abs=0.01)
    assert comparisons.sign_flip_p([0.0, *values.tolist()]) == drawn  # what is 0 has no sign


def test_what_is_not_known_and_what_is_nothing() -> None:
    assert math.isnan(comparisons.sign_flip_p([]))
    assert math.isnan(comparisons.sign_flip_p([1.0, math.nan]))
    assert comparisons.sign_flip_p([0.0, 0.0]) == 1.0


@pytest.mark.parametrize("pairs", [1, 3, 21, 210])
def test_fewer_seeds_than_the_fewest_are_never_significant(pairs: int) -> None:
    seeds = comparisons.fewest_seeds(pairs)
    assert stats.holm([comparisons.sign_flip_p([1.0] * seeds)], of=pairs) == [True]
    assert stats.holm([comparisons.sign_flip_p([1.0] * (seeds - 1))], of=pairs) == [False]


def test_means_are_restricted_and_count_who_never_gets_there() -> None:
    runs = {"a": reaching(40.0, 60.0, NEVER, 20.0), "b": [*reaching(80.0, NEVER, NEVER), Rounds.of([])]}
    found = comparisons.compare_pairs(runs, 0.8, LIMIT_S)
    one = found["a", "b"]
    assert (one.mean, one.other_mean) == (55.0, 95.0)  # a seed without a round is as late as one that never gets there
    assert (one.reached, one.other_reached, one.seeds, one.limit) == (3, 1, 4, LIMIT_S)
    assert one.difference.value == -40.0
    assert one.ratio.value == pytest.approx(95 / 55)
    assert one.p == comparisons.sign_flip_p([-40.0, -40.0, 0.0, -80.0])
    back = found["b", "a"]
    assert back == one.swapped()
    assert (back.difference.low, back.difference.high) == (-one.difference.high, -one.difference.low)
    assert back.ratio.low == pytest.approx(1.0 / one.ratio.high)


def test_survivors_alone_would_say_something_else() -> None:
    """The mistake of 0.2: of the seeds in which both get there, the one that mostly fails is five times as quick."""
    lucky = reaching(10.0, 10.0, 10.0, *[NEVER] * 7)
    steady = reaching(*[50.0] * 10, last=0.95)
    one = comparisons.compare_pairs({"lucky": lucky, "steady": steady}, 0.8, LIMIT_S)["steady", "lucky"]
    assert (one.mean, one.other_mean) == (50.0, 73.0)
    said = comparisons.headline({"lucky": lucky, "steady": steady}, 0.8, LIMIT_S)
    assert said is not None
    assert said.text.startswith("steady leads lucky by 1.5 x")


def test_the_interval_is_the_bootstraps_moved_out_as_student_asks() -> None:
    rng = np.random.default_rng(3)
    ours, theirs = 20.0 + 10.0 * rng.random(12), 50.0 + 20.0 * rng.random(12)
    one = comparisons.compare_pairs({"a": reaching(*ours), "b": reaching(*theirs)}, 0.8, LIMIT_S)["a", "b"]
    tail = scipy_stats.norm.cdf(-math.sqrt(12 / 11) * scipy_stats.t.ppf(0.975, 11))
    for estimate, statistic in (
        (one.difference, lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis)),
        (one.ratio, lambda a, b, axis: b.mean(axis=axis) / a.mean(axis=axis)),
    ):
        theirs_found = scipy_stats.bootstrap(
            (ours, theirs), statistic, paired=True, vectorized=True, n_resamples=20_000, method="percentile",
            confidence_level=1.0 - 2.0 * tail, random_state=np.random.default_rng(4),
        ).confidence_interval  # fmt: skip
        width = estimate.high - estimate.low
        assert [estimate.low, estimate.high] == pytest.approx(list(theirs_found), abs=0.06 * width)
    again = comparisons.compare_pairs({"a": reaching(*ours), "b": reaching(*theirs)}, 0.8, LIMIT_S)["a", "b"]
    assert again == one  # the same draws every time


def test_intervals_of_the_restricted_mean_hold_the_truth_where_survivors_do_not() -> None:
    """Log-normal times, half of one policy's censored at the limit: 95 % of intervals should hold the true ratio."""
    rng, limit, held, trials = np.random.default_rng(5), 60.0, 0, 150
    many = np.minimum(rng.lognormal(math.log(60.0), 0.8, 10**6), limit).mean()
    truth = many / np.minimum(rng.lognormal(math.log(20.0), 0.4, 10**6), limit).mean()
    for _ in range(trials):
        quick, slow = rng.lognormal(math.log(20.0), 0.4, 10), rng.lognormal(math.log(60.0), 0.8, 10)
        runs = {"quick": reaching(*quick), "slow": reaching(*np.where(slow > limit, NEVER, slow))}
        one = comparisons.compare_pairs(runs, 0.8, limit)["quick", "slow"]
        held += one.ratio.low <= truth <= one.ratio.high
    assert held / trials > 0.9


def test_few_seeds_have_no_interval_and_no_verdict() -> None:
    runs = {"a": reaching(10.0, 11.0), "b": reaching(50.0, 60.0)}
    one = comparisons.compare_pairs(runs, 0.8, LIMIT_S)["a", "b"]
    assert [math.isnan(end) for end in (one.difference.low, one.ratio.high)] == [True, True]
    assert one.verdict() == "2 seeds cannot tell; use at least 6"
    title, (said,) = comparisons.verdicts(runs, 0.8, LIMIT_S)
    assert title == "Time to 80 %, paired by seed: difference of restricted means (never counts as 100 s) over 2 seeds"
    assert said == "a - b: -44.5 s: 2 seeds cannot tell; use at least 6; last accuracy +0.00 points with 2 seeds"
    found = comparisons.headline(runs, 0.8, LIMIT_S)
    assert found is not None
    assert (found.text, found.sure) == ("a leads b by 5.2 x to 80 %; 2 seeds cannot tell", False)
    assert found.small == (
        "restricted mean time 10 s against 55 s, never counts as 100 s; reached by 2 of 2 seeds, b 2 of 2; "
        "use at least 6 seeds"
    )


def test_five_seeds_are_never_significant_and_six_may_be() -> None:
    for seeds, significant in ((5, False), (6, True)):
        runs = {"a": reaching(*[10.0] * seeds), "b": reaching(*[50.0] * seeds)}
        assert comparisons.compare_pairs(runs, 0.8, LIMIT_S)["a", "b"].significant == significant


def test_significance_is_corrected_for_all_pairs_and_for_policies_not_shown() -> None:
    runs = {"a": reaching(*[10.0] * 7), "b": reaching(*[50.0] * 7)}
    assert comparisons.compare_pairs(runs, 0.8, LIMIT_S)["a", "b"].significant
    one = comparisons.compare_pairs(runs, 0.8, LIMIT_S, among=7)["a", "b"]  # the two were picked from seven
    assert (one.significant, one.pairs) == (False, 21)
    assert one.verdict() == "7 seeds cannot tell; use at least 10"
    three = comparisons.compare_pairs(runs | {"c": reaching(*[50.0] * 7)}, 0.8, LIMIT_S)
    assert {pair for pair, found in three.items() if found.significant} == {
        ("a", "b"),
        ("b", "a"),
        ("a", "c"),
        ("c", "a"),
    }


def test_a_policy_whose_budget_allows_no_round_has_no_verdict() -> None:
    runs = {"greedy": reaching(*[10.0] * 8), "random:k=8": [Rounds.of([])] * 8}
    assert comparisons.compare_pairs(runs, 0.8, LIMIT_S) == {}
    _, (said,) = comparisons.verdicts(runs, 0.8, LIMIT_S)
    assert said == "greedy - random:k=8: no verdict, random:k=8 has no round: none fits into the budget"
    assert comparisons.headline(runs, 0.8, LIMIT_S) is None


def test_last_accuracies_stand_beside_of_the_seeds_that_have_one() -> None:
    runs = {"a": reaching(*[10.0] * 6, last=0.95), "b": [*reaching(*[50.0] * 5), Rounds.of([])]}
    _, (said,) = comparisons.verdicts(runs, 0.8, LIMIT_S)
    assert said.startswith("a - b: -48.33 s, 95 % interval [-73.33, -40]")
    assert said.endswith("]: significant; last accuracy +5.00 points [+5.00, +5.00]")


def test_nobody_leads_who_mostly_fails_or_is_worse_otherwise() -> None:
    gambler = reaching(*[3.0] * 7, *[NEVER] * 5, last=0.81, else_=0.1)
    random = reaching(*[60.0] * 9, *[NEVER] * 3, last=0.9, else_=0.6)
    one = comparisons.compare_pairs({"gambler": gambler, "random": random}, 0.8, LIMIT_S)["gambler", "random"]
    assert one.mean < one.other_mean
    said = comparisons.headline({"gambler": gambler, "random": random}, 0.8, LIMIT_S)
    assert said is not None
    assert (said.found, said.over) == (None, {})
    assert said.line() == (
        "No policy leads: gambler has the least mean time to 80 %, but reaches it with 7 of 12 seeds, random with 9, "
        "and has lower best and last accuracies"
    )
    rarely = comparisons.headline(
        {"lucky": reaching(3.0, 3.0, NEVER, NEVER), "no": reaching(*[NEVER] * 4)}, 0.8, LIMIT_S
    )
    assert rarely is not None
    assert rarely.text.endswith("lucky has the least mean time to 80 %, but reaches it with only 2 of 4 seeds")
    never = comparisons.headline({"a": reaching(NEVER), "b": reaching(NEVER, else_=0.7)}, 0.8, LIMIT_S)
    assert never is not None
    assert never.text.startswith("No policy reaches 80 % with any seed; the highest accuracy is 70.00 % (b).")


def test_the_headline_names_seeds_interval_and_correction() -> None:
    rng = np.random.default_rng(6)
    times = 20.0 + 10.0 * rng.random(12)
    runs = {
        "diverse": reaching(*times),
        "greedy:theta=0": reaching(*(2.5 * times[:11]), NEVER),
        "optimal": reaching(*(1.9 * times)),
    }
    said = comparisons.headline(runs, 0.8, LIMIT_S)
    assert said is not None
    assert said.sure
    one = said.found
    assert one is not None
    assert said.text == f"diverse reaches 80 % {one.ratio.value:.1f} x sooner than greedy:theta=0"
    assert said.small == (
        f"restricted mean time {one.mean:.0f} s against {one.other_mean:.0f} s, never counts as 100 s; 95 % interval "
        f"{one.ratio.low:.2f} x to {one.ratio.high:.2f} x; reached by 12 of 12 seeds, greedy:theta=0 11 of 12; Holm's "
        "correction for 3 pairs"
    )
    assert one.ratio.low < one.ratio.value < one.ratio.high


def test_a_headline_that_is_not_significant_says_so_itself() -> None:
    runs = {"a": reaching(*[10.0, 60.0] * 4), "b": reaching(*[60.0, 20.0] * 4)}
    said = comparisons.headline(runs, 0.8, LIMIT_S)
    assert said is not None
    assert (said.text, said.sure) == ("a leads b by 1.1 x to 80 %; not significant with 8 seeds", False)


def test_energies_are_compared_alike_and_unknown_ones_are_unknown() -> None:
    cheap, dear = rounds_of((5.0, 0.9), joules=2.0), rounds_of((5.0, 0.2), (10.0, 0.9), joules=6.0)
    never = rounds_of((5.0, 0.2), (9.0, 0.3), joules=1.0)
    runs = {"a": [cheap] * 3, "b": [dear, dear, never]}
    limit = comparisons.limit_of(runs, "energy", None)
    assert limit == 12.0  # the most that any run spent
    one = comparisons.compare_pairs(runs, 0.8, limit, "energy")["a", "b"]
    assert (one.mean, one.other_mean, one.other_reached) == (2.0, 12.0, 2)
    unknown = Rounds(cheap.clock_s, cheap.round_s, cheap.devices, cheap.accuracy)
    blank = {"a": [cheap], "b": [unknown]}
    assert math.isnan(comparisons.limit_of(blank, "energy", None))
    _, (said,) = comparisons.verdicts(blank, 0.8, comparisons.limit_of(blank, "energy", None), "energy")
    assert said.startswith("a - b: unknown; last accuracy")


def test_the_limit_is_the_budget_or_the_longest_run() -> None:
    runs = {"a": reaching(40.0), "b": [Rounds.of([])]}
    assert comparisons.limit_of(runs, "time", 450.0) == 450.0
    assert comparisons.limit_of(runs, "time", math.inf) == 40.0
    assert math.isnan(comparisons.limit_of({"b": [Rounds.of([])]}, "time", math.inf))


def test_how_much_is_drawn() -> None:
    assert (comparisons.RESAMPLES, comparisons.FLIPS, comparisons.MAX_EXACT) == (10_000, 20_000, 30)
