"""FedCS by hand, and beside Algorithm 3 as it is printed."""

from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng, view_of


def algorithm_3(upload_s: Any, compute_s: Any, down_s: Any, together: bool, deadline_s: float) -> list[int]:
    """The paper's loop: every client is looked at and removed, whether it is taken or not."""

    def distribution_s(devices: list[int]) -> float:
        each = [down_s[i] for i in devices]
        return max(each, default=0.0) if together else sum(each)

    left, chosen, theta_s = list(range(len(upload_s))), list[int](), 0.0
    while left:

        def more_s(i: int, theta_s: float = theta_s, chosen: tuple[int, ...] = tuple(chosen)) -> float:
            down = distribution_s([*chosen, i]) - distribution_s(list(chosen))
            return float(down + upload_s[i] + max(0.0, compute_s[i] - theta_s))

        x = max(left, key=lambda i: 1.0 / more_s(i))
        left.remove(x)
        after_s = theta_s + upload_s[x] + max(0.0, compute_s[x] - theta_s)
        if distribution_s([*chosen, x]) + after_s <= deadline_s:
            theta_s = after_s
            chosen.append(x)
    return chosen


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("downlink", [None, fc.Multicast, fc.Unicast])
def test_it_is_algorithm_3(seed: int, downlink: Any) -> None:
    draw = np.random.default_rng(seed)
    M = int(draw.integers(1, 25))
    upload_s, compute_s, down_s = draw.lognormal(-0.5, 1, M), draw.uniform(0, 10, M), draw.uniform(0.1, 2, M)
    deadline_s = float(draw.uniform(1, 20))
    view = fc.RoundView(upload_s, compute_s, downlink=None if downlink is None else downlink(down_s))
    expected = algorithm_3(
        upload_s, compute_s, np.zeros(M) if downlink is None else down_s, downlink is fc.Multicast, deadline_s
    )
    assert fc.FedCS(deadline_s).choose(view, rng()).tolist() == expected


def test_by_hand() -> None:
    """Device 1 is ready at 1 and done at 3; then 0, ready at 2, uploads from 3 to 7; 2 would end at 13."""
    view = view_of(upload_s=[4.0, 2.0, 5.0], compute_s=[2.0, 1.0, 8.0])
    assert fc.FedCS(6.9).choose(view, rng()).tolist() == [1]
    assert fc.FedCS(7.0).choose(view, rng()).tolist() == [1, 0]
    assert fc.FedCS(12.9).choose(view, rng()).tolist() == [1, 0]
    assert fc.FedCS(13.0).choose(view, rng()).tolist() == [1, 0, 2]


def test_with_shares_of_the_band_the_round_may_be_longer_than_the_deadline() -> None:
    view = view_of(upload_s=[5.0, 5.0], compute_s=[0.0, 10.0])
    plan = fc.FedCS(15.0).decide(view, rng())
    assert plan.devices.tolist() == [0, 1]
    assert plan.round_s == pytest.approx(10 + 50**0.5)  # 5 / T + 5 / (T - 10) = 1


def test_nobody_in_time_costs_the_deadline_and_the_forced_come_anyhow() -> None:
    view = view_of(upload_s=[4.0, 2.0], compute_s=[2.0, 1.0])
    nobody = fc.FedCS(2.0).decide(view, rng())
    assert (nobody.devices.size, nobody.round_s) == (0, 2.0)
    forced = view_of([4.0, 2.0, 0.5], [2.0, 1.0, 0.5], must_include=[True, False, False])
    assert fc.FedCS(2.0).decide(forced, rng()).devices.tolist() == [0]
    assert fc.FedCS(6.5).decide(forced, rng()).devices.tolist() == [0, 2]  # 2 uploads from 6 to 6.5
    assert fc.FedCS(99.0, max_devices=1).decide(view, rng()).devices.tolist() == [1]


def test_a_bad_deadline_is_named() -> None:
    with pytest.raises(fc.InputError, match=r"seconds is 0\.0; give a finite number above 0"):
        fc.parse_policy("fedcs:0")


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["fedcs"]())
    told = {"seconds": 25.0}
    assert {name: policy[name] for name in told} == told
