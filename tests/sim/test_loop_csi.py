"""The server plans with the SNR that it believes, and the clock goes by the one that holds."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
import fedcell as fc
from fedcell import units
from fedcell.protocol import Observed
from fedcell.protocol.outcome import judge
from fedcell.schedule.plan import Plan, Timing
from fedcell.sim import loop
from fedcell.world import whole_band_upload_s
from fedcell.world.rates import spectral_efficiency

spec_of = partial(builders.spec_of, rounds=5)

CSI: dict[str, Any] = {"cell": {"csi_error_db": 4.0, "radius_m": 1400.0, "model_bits": 1_628_480}}


def test_the_error_is_normal_in_db_and_changes_nothing_else() -> None:
    devices = fc.Devices(count=4000)
    exact = fc.World(fc.Cell(), devices).conditions(3, 7)
    blurred = fc.World(fc.Cell(csi_error_db=2.0), devices).conditions(3, 7)
    wider = fc.World(fc.Cell(csi_error_db=6.0), devices).conditions(3, 7)
    assert exact.believed_upload_s is exact.upload_s
    assert exact.believed_snr is exact.snr
    for name in ("positions_m", "snr", "upload_s", "compute_s"):
        np.testing.assert_array_equal(getattr(exact, name), getattr(blurred, name))
    error_db = units.ratio_to_db(blurred.believed_snr / blurred.snr)
    assert error_db.mean() == pytest.approx(0.0, abs=0.1)
    assert error_db.std() == pytest.approx(2.0, abs=0.07)
    # Common random numbers: a larger spread stretches the same errors.
    np.testing.assert_allclose(units.ratio_to_db(wider.believed_snr / wider.snr), 3.0 * error_db, rtol=1e-9)
    np.testing.assert_array_equal(
        blurred.believed_upload_s, whole_band_upload_s(fc.Cell(), spectral_efficiency(blurred.believed_snr))
    )
    again = fc.World(fc.Cell(csi_error_db=2.0), devices).conditions(3, 8)
    assert not np.isclose(again.believed_snr / again.snr, blurred.believed_snr / blurred.snr).any()


@pytest.mark.parametrize("slack", [None, 1.0, 1.3])
@pytest.mark.parametrize("policy", ["greedy", "diverse", "random:k=6,sharing=equal"])
def test_a_run_as_a_slow_twin_has_it(policy: str, slack: float | None) -> None:
    spec = spec_of(policy=policy, slack=slack, **CSI)
    run = loop.Simulation.load(spec)
    state, late = run.start(), 0
    while (played := run.step(state)) is not None:
        record, after = played
        truth = run.world.conditions(0, state.round, state.clock_s)
        ends, allowed, latest_s = [], [], 0.0
        for device, share in zip(record.plan.devices, record.plan.shares, strict=True):
            ends.append(truth.compute_s[device] + truth.upload_s[device] / share)
            planned_s = truth.compute_s[device] + truth.believed_upload_s[device] / share
            allowed.append(np.inf if slack is None else slack * planned_s)
            latest_s = max(planned_s, latest_s)
        assert record.plan.round_s == pytest.approx(latest_s)
        assert record.delivered.tolist() == [
            device for device, end, most in zip(record.plan.devices, ends, allowed, strict=True) if end <= most
        ]
        assert record.round_s == pytest.approx(min(max(ends), max(allowed)))
        late += record.plan.devices.size - record.delivered.size
        state = after
    assert (late > 0) is (slack is not None)


def test_slack_without_error_changes_nothing_but_the_spec() -> None:
    plain, waits = spec_of(policy="greedy"), spec_of(policy="greedy", slack=1.0)
    assert [r.clock_s for r in fc.simulate(plain)] == [r.clock_s for r in fc.simulate(waits)]
    assert plain.key() == waits.key()
    assert spec_of(knowledge="expected").key() != spec_of(knowledge="expected", slack=1.5).key()
    assert spec_of(**CSI).key() != spec_of(slack=1.5, **CSI).key()
    assert spec_of(**CSI).key() != spec_of(cell=CSI["cell"] | {"csi_error_db": 0.0}).key()
    assert spec_of(cell={"csi_error_db": 0.0}).key() == spec_of().key()


def test_a_device_never_seen_has_no_deadline() -> None:
    spec = spec_of(policy="all", knowledge="observed", slack=1.0, rounds=3)
    first, second, third = fc.simulate(spec)
    assert first.delivered.size == 20  # their compute times were assumed to be 0, which held nobody to anything
    assert second.delivered.size + third.delivered.size < 40
    assert second.round_s == pytest.approx(second.plan.round_s)


def test_a_late_device_is_known_to_be_at_least_so_slow() -> None:
    spec = spec_of(policy="all", knowledge="observed", slack=1.0, rounds=2)
    run = loop.Simulation.load(spec)
    one = run.step(run.start())
    assert one is not None
    two = run.step(one[1])
    assert two is not None
    late = np.setdiff1d(two[0].plan.devices, two[0].delivered)
    before, after = one[1].knowledge.compute.mean_s, two[1].knowledge.compute.mean_s
    assert late.size
    assert (after[late] >= before[late] * (1 - 1e-12)).all()
    truth = run.world.conditions(0, 1, one[1].clock_s).compute_s
    assert (after[late] <= (before[late] + truth[late]) / 2 + 1e-9).all()  # the mean, had it been waited for


@given(st.integers(1, 6), st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_turnout_against_its_words(n: int, random: Any, deadline: bool, leaving: bool) -> None:
    def draw(least: float, most: float) -> Any:
        return np.array([random.uniform(least, most) for _ in range(n)])

    began_s = draw(0.0, 5.0)
    timing = Timing(began_s, began_s + draw(0.1, 5.0))
    late_s = draw(2.0, 8.0) if deadline else np.full(n, np.inf)
    leaves_s = draw(1.0, 9.0) if leaving else np.full(n, np.inf)
    went = judge(Observed(timing, late_s, leaves_s), draw(0.1, 5.0))
    for i in range(n):
        stays = timing.finish_s[i] <= leaves_s[i]
        assert went.delivered[i] == (stays and timing.finish_s[i] <= late_s[i])
        assert not went.delivered[i] or timing.finish_s[i] <= went.round_s
        assert np.isnan(went.learnt.finish_s[i]) == (not stays)
        if stays and timing.finish_s[i] <= went.round_s:
            assert (went.learnt.began_s[i], went.learnt.finish_s[i]) == (began_s[i], timing.finish_s[i])
        elif stays:
            assert went.learnt.censored is not None
            assert went.learnt.censored[i]
            assert went.learnt.finish_s[i] <= timing.finish_s[i]
    if not deadline and not leaving:
        assert went.round_s == timing.finish_s.max()


def test_bad_settings_are_one_sentence() -> None:
    with pytest.raises(fc.InputError, match=r"csi_error_db is -1\.0; give a finite number of at least 0"):
        spec_of(cell={"csi_error_db": -1.0})
    with pytest.raises(fc.InputError, match=r"slack is 0\.5; input should be greater than or equal to 1"):
        spec_of(slack=0.5)
    with pytest.raises(fc.InputError, match=r"upload_s of device .* is .* at a rate of .* bit/s/Hz; change"):
        fc.World(fc.Cell(csi_error_db=1e5)).conditions(0)


def test_plans_are_in_the_cells_numbers_after_all() -> None:
    spec = spec_of(policy="greedy", devices={"availability": "daynight:there=0.5,day_s=60"}, slack=1.2, **CSI)
    run = loop.Simulation.load(spec)
    state = run.start()
    while (played := run.step(state)) is not None:
        record, after = played
        truth = run.world.conditions(0, state.round, state.clock_s)
        plan: Plan = record.plan
        if plan.devices.size:
            planned_s = plan.finish_s(truth.believed_upload_s, truth.compute_s)
            assert planned_s == pytest.approx(plan.round_s)
        state = after
