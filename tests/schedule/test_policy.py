"""One contract for every registered policy, and what each one promises beyond it."""

import inspect
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import full_view
from fedcell import schedule
from fedcell.schedule import diverse, greedy, optimal
from fedcell.schedule import policy as policy_module
from fedcell.schedule.plan import Question

LINES = {
    "auto": "auto",
    "diverse": "diverse:theta=0.1",
    "greedy": "greedy:theta=0.1",
    "optimal": "optimal:theta=0.1",
    "random": "random:k={k}",
    "round_robin": "round_robin:k={k}",
    "deadline": "deadline:seconds=11",
    "proportional_fair": "proportional_fair:k={k}",
    "all": "all",
    "fedcs": "fedcs:seconds=11",
    "channel_then_norm": "channel_then_norm:k={k},candidates=6",
    "fed_cgd": "fed_cgd:max_devices=4",
}
CAPPED = (
    "random:k=3",
    "round_robin:k=3",
    "proportional_fair:k=3",
    "all",
    "deadline:seconds=11",
    "greedy",
    "optimal",
    "auto",
    "diverse",
    "oort:k=3",
    "power_of_choice:k=3",
    "tifl:k=3",
    "fedcs:seconds=11",
    "age_of_update:k=3",
    "cs_ucb:k=3",
    "best_norm:k=3",
    "channel_then_norm:k=3",
    "div_fl:k=3",
    "fed_cbs:k=3",
    "fed_cgd:seconds=11",
)
EXTRA = (
    "all:sharing=equal",
    "proportional_fair:k={k},relative=true",
    "greedy:max_devices=2",
    "optimal:max_devices=2",
    "diverse:memory=0",
    "auto:who=paper",
    "oort:k={k},most_turns=2",
    "power_of_choice:k={k},variant=rpow-d",
    "tifl:k={k},interval=0,credits=1",
    "age_of_update:k={k},alpha=0.5",
    "cs_ucb:k={k},fair=true",
    "div_fl:k={k},subsample=0.5",
    "fed_cgd:seconds=11",
)


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def permuted(view: fc.RoundView, order: np.ndarray) -> fc.RoundView:
    columns = {field.name: getattr(view, field.name) for field in fields(view)}
    return replace(view, **{name: x[order] for name, x in columns.items() if isinstance(x, np.ndarray)})


def policies(M: int) -> list[fc.Policy]:
    lines = [LINES.get(name, f"{name}:k={{k}}") for name in fc.POLICIES] + list(EXTRA)
    return [fc.parse_policy(line.format(k=min(4, M))) for line in lines]


NAMES = [fc.format_policy(policy) for policy in policies(9)]


@pytest.mark.parametrize("M", [1, 2, 9, 10_000])
@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_contract(which: int, M: int) -> None:
    policy, view = policies(M)[which], full_view(M)
    plan = policy.decide(view, rng())
    assert (plan.shares >= 0).all()
    assert plan.shares.sum() <= 1 + 1e-12
    assert len(set(plan.devices.tolist())) == len(plan.devices) == len(plan.shares) > 0
    assert plan.round_s == pytest.approx(plan.finish_s(view.upload_s, view.compute_s).max(), rel=1e-9)
    again = policy.decide(view, rng())
    np.testing.assert_array_equal(plan.devices, again.devices)
    np.testing.assert_array_equal(plan.shares, again.shares)
    assert plan.round_s == again.round_s


@pytest.mark.parametrize("which", range(len(NAMES) - len(EXTRA)), ids=NAMES[: -len(EXTRA)])
def test_two_times_are_enough_to_decide(which: int) -> None:
    view = full_view(30)
    assert policies(30)[which].decide(fc.RoundView(view.upload_s, view.compute_s), rng()).devices.size > 0


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_relabelling_devices_relabels_the_plan(which: int, with_ids: bool) -> None:
    M = 30
    policy, view = policies(M)[which], full_view(M) if with_ids else full_view(M, ids=None)
    order = np.random.default_rng(3).permutation(M)
    plan, other = policy.decide(view, rng()), policy.decide(permuted(view, order), rng())
    assert sorted(order[other.devices]) == plan.devices.tolist()
    assert other.round_s == pytest.approx(plan.round_s, rel=1e-13)


@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_must_include_is_obeyed(which: int) -> None:
    M = 30
    plan_without = policies(M)[which].decide(full_view(M), rng())
    outsiders = np.setdiff1d(np.arange(M), plan_without.devices)
    forced = outsiders[:2] if outsiders.size else np.array([3, 4])
    plan = policies(M)[which].decide(full_view(M, must_include=np.isin(np.arange(M), forced)), rng())
    assert set(forced) <= set(plan.devices.tolist())
    if hasattr(policies(M)[which], "k"):
        assert len(plan.devices) == 4


@pytest.mark.parametrize("line", CAPPED)
def test_max_devices_caps_every_policy_and_keeps_the_forced(line: str) -> None:
    capped = fc.parse_policy(f"{line}{',' if ':' in line else ':'}max_devices=2")
    free = fc.parse_policy(line)
    view, forced = full_view(30), full_view(30, must_include=np.arange(30) == 17)
    plan = capped.decide(view, rng())
    assert len(plan.devices) == 2
    if line not in ("greedy", "optimal", "diverse"):
        assert set(plan.devices) <= set(free.decide(view, rng()).devices)
    assert 17 in capped.decide(forced, rng()).devices
    assert len(capped.decide(forced, rng()).devices) == 2
    with pytest.raises(fc.InputError, match="max_devices is 0"):
        fc.parse_policy(f"{line}{',' if ':' in line else ':'}max_devices=0")


def test_all_under_a_cap_takes_those_done_soonest_alone() -> None:
    view = full_view(30)
    expected = np.argsort(view.upload_s + view.compute_s)[:4]
    assert fc.All(max_devices=4).decide(view, rng()).devices.tolist() == sorted(expected)


def test_a_policy_of_ones_own_is_one_method() -> None:
    @dataclass(frozen=True)
    class Nearest(fc.Policy):
        k: int = 3

        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> np.ndarray:
            return np.argsort(view.upload_s)[: self.k]

    view = full_view(9)
    plan = Nearest().decide(view, rng())
    assert plan.devices.tolist() == sorted(np.argsort(view.upload_s)[:3])
    assert plan.shares.sum() == pytest.approx(1.0, abs=1e-12)
    forced = Nearest().decide(full_view(9, must_include=np.arange(9) == np.argmax(view.upload_s)), rng())
    assert len(forced.devices) == 4
    equal = Nearest(sharing="equal").decide(view, rng())
    np.testing.assert_allclose(equal.shares, 1 / 3)
    assert equal.round_s > plan.round_s
    with pytest.raises(FrozenInstanceError):
        Nearest().k = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([0, 0], "returned device 0 twice"),
        ([9], "returned device 9, but the devices are 0 to 8"),
        ([-1, 3], "returned device -1, but"),
        ([0.5], r"returned float64 of shape \(1,\); return a vector of device indices"),
        ([[1, 2]], r"returned int64 of shape \(1, 2\)"),
    ],
)
def test_a_bad_choice_is_named(answer: list[float], words: str) -> None:
    class Bad(fc.Policy):
        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[float]:
            return answer

    with pytest.raises(fc.InputError, match=f"Bad.choose {words}"):
        Bad().decide(full_view(9), rng())


def test_nobody_chosen_costs_nothing() -> None:
    class Nobody(fc.Policy):
        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
            return []

    plan = Nobody().decide(full_view(3), rng())
    assert (plan.devices.size, plan.shares.size, plan.round_s) == (0, 0, 0.0)


def test_former_names_still_work_and_say_how_they_are_called_now() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.cost_of_nobody_s is called empty_round_s"):

        @dataclass(frozen=True)
        class Old(fc.Policy):
            def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
                return []

            def cost_of_nobody_s(self) -> float:
                return 7.0

    view = fc.RoundView([0.5, 0.2], [1.0, 1.0], losses=[0.1, 0.2])
    assert Old().decide(view, np.random.default_rng(0)).round_s == 7.0
    asks = fc.PowerOfChoice(k=1, d=1)
    with pytest.warns(DeprecationWarning, match="checked_question"):
        question = asks.asked(view, np.random.default_rng(0))
    assert question is not None
    assert question.devices.tolist() == [0]
    with pytest.warns(DeprecationWarning, match="with_answers"):
        few = view.answered(np.array([1]), 1.0, losses=np.array([0.3]))
    assert few.upload_s.tolist() == [0.2]
    for old, new in (("limited", schedule.cap_k), ("room", schedule.max_scheduled)):
        for module in (schedule, policy_module):
            with pytest.warns(DeprecationWarning, match=f"{module.__name__}.{old} is called {new.__name__}"):
                assert getattr(module, old) is new


def test_random_draws_every_device_equally_often() -> None:
    view, draws = full_view(10), np.random.default_rng(0)
    counts = np.bincount(np.concatenate([fc.Random(3).decide(view, draws).devices for _ in range(4000)]), minlength=10)
    assert abs(counts - 1200).max() < 5 * np.sqrt(4000 * 0.3 * 0.7)


def test_round_robin_takes_everybody_in_turn() -> None:
    seen: list[int] = []
    for r in range(20):
        view = fc.RoundView(*full_view(7, seed=r).upload_s.reshape(1, 7).repeat(2, 0), round_index=r, ids=np.arange(7))
        seen.extend(fc.RoundRobin(3).choose(view, rng()).tolist())
        counts = np.bincount(seen, minlength=7)
        assert counts.max() - counts.min() <= 1
    assert seen[:9] == [0, 1, 2, 3, 4, 5, 6, 0, 1]


def test_proportional_fair_takes_the_best_channel_or_the_best_for_the_device() -> None:
    upload_s, mean = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 3.0, 16.0])
    view = fc.RoundView(upload_s, np.zeros(4), mean_upload_s=mean)
    assert fc.ProportionalFair(2).decide(view, rng()).devices.tolist() == [0, 1]
    assert fc.ProportionalFair(2, relative=True).decide(view, rng()).devices.tolist() == [1, 3]
    with pytest.raises(fc.InputError, match="needs mean_upload_s in the view"):
        fc.ProportionalFair(2, relative=True).decide(fc.RoundView(upload_s, np.zeros(4)), rng())


def test_deadline_takes_as_many_as_fit_and_costs_the_deadline_when_none_does() -> None:
    view = full_view(30)
    plan = fc.Deadline(9.0).decide(view, rng())
    assert 0 < len(plan.devices) < 30
    assert plan.round_s <= 9.0
    for outsider in np.setdiff1d(np.arange(30), plan.devices):
        grown = np.append(plan.devices, outsider)
        assert fc.allocate(view.upload_s[grown], view.compute_s[grown]).round_s > 9.0
    nobody = fc.Deadline(1.0).decide(view, rng())
    assert (nobody.devices.size, nobody.round_s) == (0, 1.0)
    forced = fc.Deadline(1.0).decide(full_view(30, must_include=np.arange(30) == 7), rng())
    assert forced.devices.tolist() == [7]
    assert len(fc.Deadline(9.0, max_devices=2).decide(view, rng()).devices) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gredy", "unknown policy 'gredy'; did you mean 'greedy'?"),
        ("xyzzy", "unknown policy 'xyzzy'; choose from .*all, .*deadline, .*diverse, .*optimal"),
        ("random", "policy 'random' needs k; write random:k=..."),
        ("random:k=many", "k of policy 'random' is 'many'; give a whole number"),
        ("random:k=0", "k is 0; give a whole number of devices of at least 1"),
        ("random:k=2,k=3", "is given k twice"),
        ("random:5,6", "'6' in policy 'random' is not understood; write key=value"),
        ("random:max_devices=5,6", "'6' in policy 'random' is not understood; write key=value"),
        ("random:5,k=6", "policy 'random' is given k twice"),
        ("greedy:Mine", "theta of policy 'greedy' is 'Mine'; give a number"),
        (":x", "policy ':x' is not understood; write package.module:Class:key=value"),
        ("..:x", "is not understood; write package.module:Class:key=value"),
        ("all:3", "'3' in policy 'all' is not understood; write key=value"),
        ("gredy:0.5", "unknown policy 'gredy'; did you mean 'greedy'?"),
        ("greedy:thta=0", "policy 'greedy' has no setting 'thta'; did you mean 'theta'?"),
        ("greedy:theta=x", "theta of policy 'greedy' is 'x'; give a number"),
        ("greedy:theta=-1", "theta is -1.0: the rounds model .* predicts no rounds for n = 1; give a theta above -1"),
        ("greedy:max_devices=0", "max_devices is 0"),
        ("deadline:seconds=-3", "seconds is -3.0; give the deadline as a positive"),
        ("all:sharing=fair", "sharing of policy 'all' is 'fair'; choose from equal, optimal"),
        ("proportional_fair:k=1,relative=perhaps", "relative of policy 'proportional_fair' is 'perhaps'"),
        ("no_such.module:Thing", "cannot import 'no_such.module'"),
        ("fedcell.units:Thing", "module 'fedcell.units' has no 'Thing'"),
        ("fedcell.units:km", "km is not a fedcell Policy"),
        ("greedy:theta=0:max_devices=2", "more than one list of settings"),
        ("fedcell.units", "policy 'fedcell.units' is not understood; write package.module:Class:key=value"),
        ("fedcell.schedule.greedy:Greedy:theta=0:k=1", "is not understood; write package.module:Class:key=value"),
    ],
)
def test_a_bad_policy_line_is_named(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words.replace("?", r"\?")):
        fc.parse_policy(line)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("random:8", "random:k=8"),
        ("optimal:0.1", "optimal:theta=0.1"),
        ("optimal:-.1", "optimal:theta=-0.1"),
        ("deadline:8,max_devices=3", "deadline:max_devices=3,seconds=8"),
        ("proportional-fair:4,relative=true", "proportional_fair:k=4,relative=True"),
        ("diverse:2", "diverse:theta=2"),
        ("fedcell.schedule.baselines:Random:3", "random:k=3"),
    ],
)
def test_the_first_setting_of_a_policy_needs_no_key(short: str, long: str) -> None:
    assert fc.format_policy(fc.parse_policy(short)) == long
    run = fc.Spec(policy=short, rounds=1)
    assert (run.policy, run.key()) == (long, fc.Spec(policy=long, rounds=1).key())


@pytest.mark.parametrize("line", ["bomb:Bomb", "bomb:Bomb:k=1", "bomb.inner:Bomb", " bomb : Bomb", "bomb.x", "bomb:x:"])
def test_nothing_is_imported_where_that_is_not_allowed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "went-off"
    (tmp_path / "bomb").mkdir()
    for name in ("__init__", "inner", "x"):
        (tmp_path / "bomb" / f"{name}.py").write_text(f"open({str(trace)!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(fc.InputError, match="named policies only"):
        fc.parse_policy(line, allow_import=False)
    assert not trace.exists()
    assert "bomb" not in sys.modules
    try:
        with pytest.raises(fc.InputError):  # the trap works: what is allowed goes off
            fc.parse_policy("bomb:Bomb")
        assert trace.exists()
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "bomb"]:
            del sys.modules[name]


def test_named_policies_need_no_import() -> None:
    assert fc.parse_policy("round-robin:k=3", allow_import=False) == fc.RoundRobin(3)


@pytest.mark.parametrize("which", range(len(NAMES)), ids=NAMES)
def test_names_round_trip(which: int) -> None:
    policy = policies(9)[which]
    assert fc.parse_policy(fc.format_policy(policy)) == policy


def test_ones_own_class_by_its_module() -> None:
    assert fc.parse_policy("fedcell.schedule.greedy:Greedy:theta=0.25") == fc.Greedy(0.25)
    assert fc.parse_policy("round-robin:k=3") == fc.RoundRobin(3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"upload_s": [], "compute_s": []}, "the cell is empty"),
        ({"upload_s": [1.0], "compute_s": [1.0, 2.0]}, r"upload_s has shape \(1,\) and compute_s has shape \(2,\)"),
        ({"upload_s": [[1.0]], "compute_s": [[1.0]]}, "give two vectors"),
        ({"upload_s": [np.nan], "compute_s": [1.0]}, r"upload_s\[0\] is nan"),
        ({"upload_s": [1.0], "compute_s": [1.0], "must_include": [1]}, "give booleans"),
        ({"upload_s": [1.0], "compute_s": [1.0], "must_include": [True, False]}, r"must_include has shape \(2,\)"),
        ({"upload_s": [1.0, 1.0], "compute_s": [1.0, 1.0], "ids": [3, 3]}, "ids must be distinct integers"),
        ({"upload_s": [1.0], "compute_s": [1.0], "mean_upload_s": [0.0]}, r"mean_upload_s\[0\] is .*0.0"),
    ],
)
def test_a_bad_view_is_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.RoundView(**arguments)  # type: ignore[arg-type]


def test_more_devices_than_there_are_is_refused() -> None:
    for policy in (fc.Random(10), fc.RoundRobin(10), fc.ProportionalFair(10)):
        with pytest.raises(fc.InputError, match="k is 10, but the cell has 9 devices; give a k of at most 9"):
            policy.decide(full_view(9), rng())


def test_forcing_more_than_fit_is_refused() -> None:
    view = full_view(9, must_include=np.arange(9) < 5)
    with pytest.raises(fc.InputError, match="must_include forces 5 devices in, but k is 4; raise k"):
        fc.Random(4).decide(view, rng())
    for policy in (fc.Greedy(max_devices=4), fc.Optimal(max_devices=4), fc.Deadline(9.0, max_devices=4)):
        with pytest.raises(fc.InputError, match="but max_devices is 4; raise max_devices"):
            policy.decide(view, rng())


@pytest.mark.parametrize("law", [fc.Density(), fc.Blocks(9)], ids=["density", "blocks"])
def test_whole_numbers_as_settings_are_not_compiled_for_again(law: fc.Density | fc.Blocks) -> None:
    """It takes seconds, and a user who writes theta=0 rather than theta=0.0 means the same."""
    functions: list[Any] = [greedy._grow, optimal._best_set, optimal._best_set_by, diverse._search]

    def compiled_for(one: float) -> list[int]:
        view = full_view(5, law=law)
        for policy in (fc.Greedy(one), fc.Optimal(one), fc.Diverse(one), fc.Deadline(11 * one)):
            assert len(policy.decide(view, rng()).devices)
        return [len(function.signatures) for function in functions]

    assert compiled_for(1.0) == compiled_for(1)


@pytest.mark.parametrize(("k", "M", "invited"), [(4, 9, 6), (3, 9, 5), (4, 5, 5), (5, 5, 5)])
def test_overcommit_invites_more_and_waits_for_k(k: int, M: int, invited: int) -> None:
    policy = fc.Random(k, overcommit=1.5)
    assert policy.decide(full_view(M), rng()).devices.size == invited
    assert policy.needed(invited) == k
    assert policy.needed(k - 1) == k - 1
    assert fc.Random(k).needed(invited) == invited


def test_overcommit_of_a_policy_without_k_waits_for_a_part() -> None:
    policy = fc.All(overcommit=1.5)
    assert policy.decide(full_view(9), rng()).devices.size == 9
    assert [policy.needed(n) for n in (1, 9, 10)] == [1, 6, 7]


def test_no_policy_overcommits_or_has_momentum_unless_told() -> None:
    for policy in (fc.Random(4), fc.All(), fc.Greedy()):
        assert (policy.needed(5), policy.server_momentum, policy.max_devices) == (5, 0.0, None)
    with pytest.raises(fc.InputError, match=r"overcommit is 0.5; give a finite number of at least 1"):
        fc.All(overcommit=0.5)


@dataclass(frozen=True)
class Efforts(fc.Policy):
    """Everybody, with the epochs and bits that it is made with."""

    epochs: Any = None
    bits: Any = None

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> np.ndarray:
        return np.arange(len(view))

    def local_epochs(self, view: fc.RoundView, devices: np.ndarray) -> Any:
        return self.epochs

    def upload_bits(self, view: fc.RoundView, devices: np.ndarray) -> Any:
        return self.bits


def test_work_and_bits_lengthen_and_shorten_a_round() -> None:
    view = fc.RoundView([1.0, 1.0], [4.0, 1.0], weights=1000, tensors=1)
    plan = Efforts([0.5, 2.0], [8, 32]).decide(view, rng())
    assert (np.asarray(plan.epochs).tolist(), np.asarray(plan.bits).tolist()) == ([0.5, 2.0], [8, 32])
    part = view.upload_part([8, 32])
    expected = fc.allocate(part * np.ones(2), [2.0, 2.0])
    assert (plan.shares.tolist(), plan.round_s) == (expected.shares.tolist(), expected.round_s)


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ([1.5, 1.0], "Efforts.local_epochs returned 1.5; give a fraction of an epoch, or a whole number of them"),
        ([0.0, 1.0], r"Efforts.local_epochs returned \[0.0, 1.0\]; return a positive number for each of the 2 devices"),
        ([np.inf, 1.0], "return a positive number for each of the 2 devices, or None"),
        ([1.0], "return a positive number for each of the 2 devices, or None"),
    ],
)
def test_local_epochs_that_nobody_can_train_are_refused(epochs: list[float], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        Efforts(epochs).decide(fc.RoundView([1.0, 1.0], [4.0, 1.0]), rng())


@dataclass(frozen=True)
class Asks(fc.Policy):
    """Asks some devices for their losses."""

    who: Any = ()
    k: int = 2

    def ask(self, view: fc.RoundView, rng: np.random.Generator) -> Question | None:
        return Question(np.array(self.who, np.int64), "loss")

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> np.ndarray:
        return np.arange(self.k)


def test_who_is_asked_includes_the_forced_and_none_too_dear() -> None:
    forced, joules = np.arange(5) == 3, np.array([1.0, 2.0, 3.0, 1.0, 9.0])
    view = fc.RoundView(np.ones(5), np.ones(5), must_include=forced, joules=joules)

    def asked(policy: fc.Policy) -> list[int] | None:
        question = policy.checked_question(view, rng())
        return None if question is None else question.devices.tolist()

    assert asked(Asks((4, 0))) == [0, 3, 4]
    assert asked(Asks((4, 0), max_joules=3.0)) == [0, 3]
    assert Asks((4,), max_joules=3.0).checked_question(replace(view, must_include=None), rng()) is None
    assert fc.All().checked_question(view, rng()) is None
    with pytest.raises(fc.InputError, match=r"Asks.ask returned device 5, but the devices are 0 to 4"):
        asked(Asks((5,)))
    with pytest.raises(fc.InputError, match="k is 6, but the cell has 5 devices"):
        asked(Asks((0,), k=6))
    with pytest.raises(fc.InputError, match="rng is 7; give a random generator"):
        fc.All().checked_question(view, 7)  # type: ignore[arg-type]


def test_a_policy_that_writes_into_the_view_is_told_to_copy() -> None:
    class Greedy(fc.Policy):
        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
            view.upload_s[0] = 1.0
            return [0]

    class Wrong(fc.Policy):
        def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
            raise ValueError("something else")

    with pytest.raises(fc.InputError, match=r"Greedy changes an array of the view .*; copy it first"):
        Greedy().decide(full_view(3), rng())
    with pytest.raises(ValueError, match="something else"):
        Wrong().decide(full_view(3), rng())
    with pytest.raises(fc.InputError, match="rng is 'x'; give a random generator"):
        fc.All().decide(full_view(3), "x")  # type: ignore[arg-type]


def test_a_law_that_carries_few_cannot_carry_more_forced_ones() -> None:
    law = fc.Blocks(2)
    assert fc.All().decide(full_view(5, law=law), rng()).devices.size == 2
    with pytest.raises(fc.InputError, match=r"must_include forces 3 devices in, but there are .*; force in fewer"):
        fc.All().decide(full_view(5, law=law, must_include=np.arange(5) < 3), rng())


BY_PLACE = {
    "auto": ["epochs", "bits", "momentum", "who"],
    "diverse": ["theta", "memory"],
    "greedy": ["theta"],
    "optimal": ["theta"],
    "deadline": ["seconds"],
    "all": [],
    "fedcs": ["seconds"],
    "channel_then_norm": ["k", "candidates"],
    "div_fl": ["k", "subsample"],
    "fed_cbs": ["k", "explore"],
    "fed_cgd": ["seconds", "variance"],
}
USES = {
    "auto": ("uses_profiles", "uses_updates", "uses_sums"),
    "diverse": ("uses_profiles",),
    "oort": ("uses_rms",),
    "div_fl": ("uses_updates",),
}


@pytest.mark.parametrize("name", fc.POLICIES)
def test_a_policys_first_settings_may_be_told_by_their_place_and_the_others_by_name(name: str) -> None:
    given = inspect.signature(fc.POLICIES[name]).parameters.values()
    places = [one.name for one in given if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert places == BY_PLACE.get(name, ["k"])
    policy = fc.POLICIES[name]
    for flag in ("uses_profiles", "uses_rms", "uses_norms", "uses_updates", "uses_sums"):
        assert getattr(policy, flag) == (flag in USES.get(name, ())), flag
