"""Link laws: allocation, greedy and the optimum are right for each, against slow twins that know only upload times."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcell as fc
from fedcell.schedule import bandwidth, greedy, optimal
from fedcell.schedule.greedy import grow
from fedcell.schedule.optimal import best_set, shortest_rounds
from twins.laws import best_of_all, round_seconds

times_s = st.floats(1e-2, 1e2)
Cell = list[tuple[float, float, float]]
cells = st.lists(st.tuples(times_s, st.floats(0.0, 50.0), st.floats(0.05, 1e4)), min_size=1, max_size=4)
tied_cells = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([1.0, 10.0])),
    min_size=1,
    max_size=4,
)
thetas = st.sampled_from([0.0, 0.05, 0.94, 5.0])
NO_DRAWS = np.random.default_rng(0)

LAWS: dict[str, Callable[[np.ndarray], fc.Law]] = {
    "blocks": lambda _: fc.Blocks(7),
    "power": fc.Power,
    "ingress": lambda _: fc.Ingress(pipe_s=0.7),
    "wide ingress": lambda _: fc.Ingress(pipe_s=0.001),
    "dedicated": lambda _: fc.Dedicated(),
    "density": lambda _: fc.Density(),
}
laws = pytest.mark.parametrize("law", LAWS)


def columns(cell: Cell) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    c, t, snr = np.array(cell).T
    return c, t, snr


@laws
@settings(max_examples=25)
@given(cell=cells | tied_cells)
def test_the_band_is_shared_as_well_as_it_can_be(law: str, cell: Cell) -> None:
    c, t, snr = columns(cell)
    value = LAWS[law](snr)
    band = fc.allocate(c, t, law=value)
    assert band.round_s == pytest.approx(round_seconds(value, c.tolist(), t.tolist(), snr.tolist()), rel=1e-9)
    assert law == "dedicated" or band.shares.sum() <= 1.0 + 1e-9
    ends_s = fc.Plan(np.arange(c.size), band.shares, 0.0).finish_s(c, t, value)
    assert ends_s.max() == pytest.approx(band.round_s, rel=1e-9)
    if law == "blocks":
        np.testing.assert_allclose(7 * band.shares, np.rint(7 * band.shares), rtol=0, atol=1e-12)


@laws
@settings(max_examples=25)
@given(cell=cells | tied_cells, theta=thetas, data=st.data())
def test_optimal_is_the_best_of_all_subsets(law: str, cell: Cell, theta: float, data: st.DataObject) -> None:
    c, t, snr = columns(cell)
    forced = data.draw(st.lists(st.integers(0, c.size - 1), unique=True, max_size=1))
    most = data.draw(st.integers(max(1, len(forced)), c.size))
    value = LAWS[law](snr)
    view = fc.RoundView(c, t, law=value, must_include=np.isin(np.arange(c.size), forced))
    found = best_set(view, theta, most)
    assert set(forced) <= set(found.tolist())
    assert found.size <= most
    T = fc.allocate(c[found], t[found], law=value.take(found)).round_s
    least = best_of_all(value, c.tolist(), t.tolist(), snr.tolist(), theta, forced, most)
    assert (theta + 1.0 / found.size) * float(T) == pytest.approx(least, rel=1e-8)


@laws
@settings(max_examples=25)
@given(cell=st.lists(st.tuples(times_s, st.floats(0.0, 50.0), st.floats(0.05, 1e4)), min_size=2, max_size=9))
def test_greedy_adds_what_lengthens_the_round_least(law: str, cell: Cell) -> None:
    c, t, snr = columns(cell)
    value = LAWS[law](snr)
    view = fc.RoundView(c, t, law=value)

    def seconds(devices: list[int]) -> float:
        return float(fc.allocate(c[devices], t[devices], law=value.take(devices)).round_s)

    order = grow(view, int(min(c.size, value.max_devices))).tolist()
    assert len(order) == min(c.size, value.max_devices)
    for n in range(1, len(order) + 1):
        rest = [k for k in range(c.size) if k not in order[: n - 1]]
        least = min(seconds([*order[: n - 1], k]) for k in rest)
        assert seconds(order[:n]) == pytest.approx(least, rel=1e-9)


def shortest_by_bisection(view: fc.RoundView, n: int) -> float:
    """T_n from the needs alone: the least T at which the n smallest sum to at most 1."""
    low, high = 0.0, 1e6
    c, t, law = view.upload_s, view.compute_s, view.law
    for _ in range(100):
        T = (low + high) / 2.0
        fits = sorted(needed_by(law, float(c[i]), float(t[i]), i, T) for i in range(len(view)))
        low, high = (low, T) if sum(fits[:n]) <= 1.0 + 1e-12 else (T, high)  # blocks sum to 1 but for rounding
    return high


def needed_by(law: object, c: float, t: float, i: int, T: float) -> float:
    if t >= T:
        return math.inf
    match law:
        case fc.Blocks(count=count):
            return math.ceil(count * c / (T - t)) / count
        case fc.Ingress(pipe_s=float(pipe_s)):
            return pipe_s / (T - t) if t + c <= T else math.inf
        case fc.Power(snr=snr):
            assert snr is not None
            s, low, high = float(snr[i]), 0.0, 1e9
            if c * math.log1p(s) / s >= T - t:
                return math.inf
            for _ in range(100):
                g = (low + high) / 2.0
                low, high = (low, g) if c * math.log1p(s) / (g * math.log1p(s / g)) <= T - t else (g, high)
            return high
        case _:
            return c / (T - t)


@pytest.mark.parametrize("law", ["blocks", "power", "ingress", "density"])
@pytest.mark.parametrize("kind", ["paper", "lognormal"])
def test_optimal_equals_a_search_over_all_n_in_larger_cells(law: str, kind: str) -> None:
    rng, M = np.random.default_rng(4), 40
    drawn = fc.World(fc.Cell(radius_m=1400.0), fc.Devices(M)).conditions(3)
    c, t = (drawn.upload_s, drawn.compute_s) if kind == "paper" else (rng.lognormal(0, 2, M), rng.lognormal(2, 1, M))
    kinds: dict[str, fc.Law] = {
        "blocks": fc.Blocks(50),
        "power": fc.Power(drawn.snr),
        "ingress": fc.Ingress(pipe_s=0.3),
        "density": fc.Density(),
    }
    value = kinds[law]
    view = fc.RoundView(c, t, law=value)
    every = [shortest_by_bisection(view, n) for n in range(1, M + 1)]
    np.testing.assert_allclose(shortest_rounds(view, np.arange(1, M + 1)), every, rtol=1e-9)
    for theta in (0.0, 0.139):
        plan = fc.Optimal(theta).decide(view, NO_DRAWS)
        least = min((theta + 1.0 / n) * T for n, T in enumerate(every, 1))
        assert (theta + 1.0 / plan.devices.size) * plan.round_s == pytest.approx(least, rel=1e-9)


@laws
def test_diverse_is_as_good_as_the_best_of_all_sets_in_most_small_cells(law: str) -> None:
    exact = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        M = 6
        c, t, snr = rng.lognormal(0, 1, M), rng.exponential(2.0, M), rng.lognormal(2, 2, M)
        value = LAWS[law](snr)
        profiles = rng.dirichlet(np.full(4, 0.3), M)
        z = profiles - profiles.mean(axis=0)
        z /= math.sqrt(np.square(z).sum(axis=1).mean())

        def worth(devices: list[int], c=c, t=t, z=z, value=value) -> float:  # type: ignore[no-untyped-def]
            T = fc.allocate(c[devices], t[devices], law=value.take(devices)).round_s
            return float((0.05 + np.square(z[devices].mean(axis=0)).sum()) * T)

        view = fc.RoundView(c, t, law=value, profiles=profiles)
        found = worth(fc.Diverse().decide(view, NO_DRAWS).devices.tolist())
        least = min(worth(list(s)) for n in range(1, M + 1) for s in combinations(range(M), n))
        assert found >= least * (1 - 1e-9)
        exact += found <= least * (1 + 1e-9)
    assert exact >= 18


@laws
@settings(max_examples=20)
@given(cell=st.lists(st.tuples(times_s, st.floats(0.0, 50.0), st.floats(0.05, 1e4)), min_size=2, max_size=7))
def test_permuting_the_devices_permutes_the_round(law: str, cell: Cell) -> None:
    c, t, snr = columns(cell)
    order = np.random.default_rng(0).permutation(c.size)
    for policy in (fc.Optimal(0.1), fc.All()):
        one = policy.decide(fc.RoundView(c, t, law=LAWS[law](snr)), NO_DRAWS)
        two = policy.decide(fc.RoundView(c[order], t[order], law=LAWS[law](snr[order])), NO_DRAWS)
        assert two.round_s == pytest.approx(one.round_s, rel=1e-9)


@pytest.mark.parametrize("policy", [fc.Optimal(0.05), fc.Optimal(0.0), fc.Diverse()])
@laws
def test_the_search_ends_where_a_bound_is_met_exactly(policy: fc.Policy, law: str) -> None:
    """Once a range of T was empty but for rounding, and was looked at for ever."""
    c, t = np.array([1.0, 2.0, 3.0, 9.0]), np.array([4.0, 1.0, 2.0, 1.0])
    value = fc.Ingress(pipe_s=2.5) if law == "ingress" else LAWS[law](np.ones(4))
    assert policy.decide(fc.RoundView(c, t, law=value), NO_DRAWS).devices.size


def test_many_blocks_are_the_papers_band_and_few_take_longer() -> None:
    drawn = fc.World(fc.Cell(radius_m=1400.0)).conditions(1)
    smooth = float(fc.allocate(drawn.upload_s, drawn.compute_s).round_s)
    rounds = [float(fc.allocate(drawn.upload_s, drawn.compute_s, law=fc.Blocks(n)).round_s) for n in (20, 50, 10**6)]
    assert rounds[0] > rounds[1] > rounds[2] > smooth * (1 - 1e-12)
    assert rounds[2] == pytest.approx(smooth, rel=1e-4)


def test_hundred_thousand_devices_in_a_million_blocks_leave_no_shorter_round() -> None:
    rng = np.random.default_rng(0)
    c, t, N = rng.lognormal(-8, 1, 100_000), rng.exponential(3.0, 100_000), 1_000_000
    band = fc.allocate(c, t, law=fc.Blocks(N))
    T, blocks = float(band.round_s), np.rint(N * band.shares)
    assert blocks.sum() <= N
    assert (t + N * c / blocks).max() == pytest.approx(T, rel=1e-12)
    assert np.ceil(N * c / (T * (1 - 1e-9) - t)).sum() > N  # by then they would need more


@pytest.mark.parametrize("sharing", ["optimal", "equal"])
def test_a_batch_of_sets_is_each_set_alone(sharing: str) -> None:
    rng = np.random.default_rng(0)
    c, t, snr = rng.lognormal(0, 1, (5, 4)), rng.exponential(2.0, (5, 4)), rng.lognormal(2, 1, (5, 4))
    where = np.array([[True] * 4, [True, False, True, True], [False, True, False, False], [True] * 4, [True] * 4])
    for law in (fc.Blocks(9), fc.Ingress(pipe_s=0.5), fc.Dedicated(), fc.Power(snr), fc.Power(snr[0])):
        batch = fc.allocate(c, t, where=where, law=law, sharing=sharing)  # type: ignore[arg-type]
        for row in range(5):
            used = np.flatnonzero(where[row])
            mine = fc.Power(np.broadcast_to(np.asarray(law.snr), c.shape)[row]) if isinstance(law, fc.Power) else law
            one = fc.allocate(c[row, used], t[row, used], law=mine.take(used), sharing=sharing)  # type: ignore[arg-type]
            np.testing.assert_allclose(batch.shares[row, used], one.shares, rtol=1e-12)
            assert not batch.shares[row][~where[row]].any()
            assert np.asarray(batch.round_s)[row] == pytest.approx(one.round_s, rel=1e-12)


def test_equal_shares_mean_something_for_each_law() -> None:
    c, t = np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0])
    blocks = fc.allocate(c, t, law=fc.Blocks(7), sharing="equal")
    assert (7 * blocks.shares).round(9).tolist() == [2.0, 2.0, 3.0]  # the seventh to the one that would finish last
    assert blocks.round_s == pytest.approx(2.0 + 7 * 4.0 / 3)
    power = fc.allocate(c, t, law=fc.Power(np.array([1.0, 1.0, 1.0])), sharing="equal")
    assert power.round_s == pytest.approx(2.0 + 4.0 * math.log(2) / (math.log(4) / 3))
    pipe = fc.allocate(c, t, law=fc.Ingress(pipe_s=1.0), sharing="equal")
    assert pipe.round_s == pytest.approx(6.0)  # the longest line, 4 s, is longer than a third of the pipe


@pytest.mark.parametrize("policy", ["all", "random:k=2", "round_robin:k=2", "proportional_fair:k=2"])
@pytest.mark.parametrize("sharing", ["optimal", "equal"])
@laws
def test_every_policy_plans_under_every_law(policy: str, sharing: str, law: str) -> None:
    c, t, snr = np.array([1.0, 3.0, 5.0]), np.array([2.0, 4.0, 1.0]), np.array([1.0, 5.0, 100.0])
    view = fc.RoundView(c, t, law=LAWS[law](snr))
    plan = fc.parse_policy(f"{policy}{',' if ':' in policy else ':'}sharing={sharing}").decide(view, NO_DRAWS)
    assert plan.round_s == pytest.approx(plan.finish_s(c, t, view.law).max(), rel=1e-12)


def test_a_deadline_that_no_share_can_meet_schedules_nobody() -> None:
    """However wide the band, c ln(1 + s) / s = 0.69 s of upload remain."""
    view = fc.RoundView(np.array([1.0]), np.array([2.0]), law=fc.Power(np.array([1.0])))
    assert fc.Deadline(2.69).decide(view, NO_DRAWS).devices.size == 0
    assert fc.Deadline(3.0).decide(view, NO_DRAWS).devices.tolist() == [0]


def test_more_devices_than_blocks() -> None:
    view = fc.RoundView(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0]), law=fc.Blocks(2))
    assert fc.All().decide(view, NO_DRAWS).devices.tolist() == [0, 1]  # those that would be done first
    assert fc.Optimal(0.0).decide(view, NO_DRAWS).devices.size <= 2
    assert fc.Greedy(0.0).decide(view, NO_DRAWS).devices.size <= 2
    with pytest.raises(fc.InputError, match="k is 3, but there are 2 resource blocks"):
        fc.Random(3).decide(view, NO_DRAWS)
    with pytest.raises(fc.InputError, match="3 devices cannot share 2 resource blocks"):
        fc.allocate([1.0] * 3, [1.0] * 3, law=fc.Blocks(2))
    forced = fc.RoundView(
        np.array([1.0] * 3), np.array([1.0] * 3), law=fc.Blocks(2), must_include=np.ones(3, dtype=bool)
    )
    with pytest.raises(fc.InputError, match="forces 3 devices in, but there are 2 resource blocks"):
        fc.Optimal(0.0).decide(forced, NO_DRAWS)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fc.Blocks(10**400), "count of the law blocks is more than 1,000,000,000"),
        (lambda: fc.Blocks(0), "count of the law blocks is 0; give a whole number"),
        (lambda: fc.Power(np.array([1.0, -2.0])), r"snr\[1\] of the law power is -2"),
        (lambda: fc.Power(np.array([math.nan])), "snr.* of the law power is nan"),
        (fc.Ingress, "needs the rate of the server's uplink"),
        (lambda: fc.Ingress(-1.0), "bits_per_s of the law ingress is -1"),
        (
            lambda: fc.RoundView(np.ones(2), np.ones(2), law=fc.Power(np.ones(1))),
            r"snr of the law power has shape \(1,\)",
        ),
        (lambda: fc.RoundView(np.array([1.0]), np.array([1.0]), law=fc.Power()), "needs the SNR of every device"),
        (lambda: fc.RoundView(np.array([1.0]), np.array([1.0]), law=fc.Ingress(1e6)), "needs seconds here"),
        (lambda: fc.parse_law("blok:3"), "unknown law 'blok'; did you mean 'blocks'"),
        (lambda: fc.parse_law("blocks:count=x"), "count of law 'blocks' is 'x'; give a whole number"),
        (lambda: fc.parse_law("power:snr=3"), "takes no settings"),
    ],
)
def test_what_cannot_be_a_law_is_said(make: Callable[[], object], said: str) -> None:
    with pytest.raises(fc.InputError, match=said):
        make()


@pytest.mark.parametrize("text", ["density", "blocks:count=15", "power", "dedicated", "ingress:bits_per_s=10000000"])
def test_a_law_is_written_as_it_is_read(text: str) -> None:
    assert fc.format_law(fc.parse_law(text)) == text


def dedicated(cell: list[tuple[float, float]], **columns: object) -> fc.RoundView:
    c, t = np.array(cell).T
    return fc.RoundView(c, t, law=fc.Dedicated(), **columns)


@given(st.lists(st.tuples(times_s, times_s), min_size=1, max_size=8), st.floats(0.01, 2e4))
def test_a_deadline_takes_all_who_keep_it(cell: list[tuple[float, float]], seconds: float) -> None:
    view = dedicated(cell)
    ends_s = view.upload_s + view.compute_s
    if (np.abs(ends_s / seconds - 1) < 1e-9).any():
        return  # on the deadline but for rounding
    plan = fc.Deadline(seconds).decide(view, NO_DRAWS)
    assert plan.devices.tolist() == np.flatnonzero(ends_s <= seconds).tolist()


def test_diverse_takes_one_of_each_kind_by_its_end() -> None:
    labels = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    view = dedicated([(1.0, 2.0), (1.0, 1.0), (3.0, 2.0), (2.0, 9.0)], profiles=labels)
    plan = fc.Diverse().decide(view, NO_DRAWS)
    assert 2 in plan.devices
    assert plan.round_s == 5.0  # devices 0 and 1 both fit below it


@laws
def test_read_only_arrays_do_as_others_and_nothing_is_compiled_for_them(law: str) -> None:
    """pandas and JAX hand such arrays over; to Numba they are another type."""
    c, t, snr = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [1.0, 10.0, 5.0]])

    def plans() -> list[list[float]]:
        view = fc.RoundView(c, t, law=LAWS[law](snr))
        decided = [fc.parse_policy(line).decide(view, NO_DRAWS).shares.tolist() for line in ("greedy", "optimal")]
        return [*decided, fc.allocate(c, t, law=LAWS[law](snr), where=np.broadcast_to(True, 3)).shares.tolist()]

    before = plans()
    for array in (c, t, snr):
        array.setflags(write=False)
    compiled: list[Any] = [
        greedy._grow,
        optimal._best_set,
        optimal._best_set_by,
        bandwidth._share_rows,
    ]
    counts = [len(function.signatures) for function in compiled]
    assert plans() == before
    assert [len(function.signatures) for function in compiled] == counts
