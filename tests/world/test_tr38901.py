"""TR 38.901 against its tables by hand, ns-3's tests, MATLAB's documentation and Sionna."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcell.errors import InputError
from fedcell.types import Floats
from fedcell.world import (
    CHANNELS,
    Cell,
    Devices,
    Redrawn,
    RMa,
    Static,
    UMa,
    UMi,
    World,
    loss_db,
    mean_upload_s,
    tr38901,
)
from fedcell.world.tr38901 import Outdoor38901, normal_quantile

SCENARIOS = (UMa, UMi, RMa)
lg = math.log10


def at(*distance_m: float) -> Floats:
    return np.array(distance_m)


def test_uma_by_hand() -> None:
    # 2 GHz, 25 m and 1.5 m: d' = 4 x 24 x 0.5 x 2e9 / 3e8 = 320 m; d3 = sqrt(200^2 + 23.5^2) = 201.3759 m
    channel = UMa(carrier_hz=2e9)
    assert channel.breakpoint_m == pytest.approx(320.0)
    near = 28.0 + 22 * lg(201.3759) + 20 * lg(2)
    # beyond d', d = 1000 m: d3 = 1000.276 m, d'^2 + 23.5^2 = 102400 + 552.25
    far = 28.0 + 40 * lg(1000.276) + 20 * lg(2) - 9 * lg(102952.25)
    np.testing.assert_allclose(channel.los_loss_db(at(200.0, 1000.0)), [near, far], atol=1e-4)
    np.testing.assert_allclose([near, far], [84.709, 108.912], atol=1e-3)
    blocked = 13.54 + 39.08 * lg(1000.276) + 20 * lg(2) - 0.6 * (1.5 - 1.5)
    np.testing.assert_allclose(channel.nlos_loss_db(at(1000.0)), [blocked], atol=1e-4)
    high = UMa(carrier_hz=2e9, ue_height_m=11.5)  # d3 = sqrt(1000^2 + 13.5^2)
    assert high.nlos_loss_db(at(1000.0))[0] == pytest.approx(
        13.54 + 39.08 * lg(1000.0911) + 20 * lg(2) - 0.6 * 10.0, abs=1e-4
    )
    np.testing.assert_allclose(
        channel.los_probability(at(5.0, 18.0, 100.0, 500.0)),
        [1.0, 1.0, 0.18 + math.exp(-100 / 63) * 0.82, 0.036 + math.exp(-500 / 63) * 0.964],
        rtol=1e-12,
    )


def test_umi_by_hand() -> None:
    # 28 GHz, 10 m and 1.5 m: d' = 4 x 9 x 0.5 x 28e9 / 3e8 = 1680 m; d3 = sqrt(100^2 + 8.5^2) = 100.3606 m
    channel = UMi(carrier_hz=28e9)
    assert channel.breakpoint_m == pytest.approx(1680.0)
    near = 32.4 + 21 * lg(100.3606) + 20 * lg(28)
    # d = 2000 m: d3 = 2000.01806 m, d'^2 + 8.5^2 = 2822400 + 72.25
    far = 32.4 + 40 * lg(2000.01806) + 20 * lg(28) - 9.5 * lg(2822472.25)
    np.testing.assert_allclose(channel.los_loss_db(at(100.0, 2000.0)), [near, far], atol=1e-4)
    blocked = 35.3 * lg(100.3606) + 22.4 + 21.3 * lg(28) - 0.3 * (1.5 - 1.5)
    np.testing.assert_allclose(channel.nlos_loss_db(at(100.0)), [blocked], atol=1e-4)
    assert channel.los_probability(at(100.0))[0] == pytest.approx(0.18 + math.exp(-100 / 36) * 0.82)


def test_rma_by_hand() -> None:
    # 0.7 GHz, 35 m and 1.5 m, h = 5 m, W = 20 m: d' = 2 pi x 35 x 1.5 x 0.7e9 / 3e8 = 769.69 m
    channel = RMa(carrier_hz=0.7e9)
    assert channel.breakpoint_m == pytest.approx(769.690, abs=1e-3)
    # 5^1.72 = 15.9300: 0.03 and 0.044 of it are below 10 and 14.77; d3 = sqrt(500^2 + 33.5^2) = 501.1210 m
    near = 20 * lg(40 * math.pi * 501.1210 * 0.7 / 3) + 0.4779 * lg(501.1210) - 0.70092 + 0.002 * lg(5) * 501.1210
    knee = 20 * lg(40 * math.pi * 769.690 * 0.7 / 3) + 0.4779 * lg(769.690) - 0.70092 + 0.002 * lg(5) * 769.690
    far = knee + 40 * lg(2000.2805 / 769.690)  # d3 = sqrt(2000^2 + 33.5^2)
    np.testing.assert_allclose(channel.los_loss_db(at(500.0, 2000.0)), [near, far], atol=1e-3)
    blocked = (
        161.04
        - 7.1 * lg(20)
        + 7.5 * lg(5)
        - (24.37 - 3.7 * (5 / 35) ** 2) * lg(35)
        + (43.42 - 3.1 * lg(35)) * (lg(2000.2805) - 3)
        + 20 * lg(0.7)
        - (3.2 * lg(11.75 * 1.5) ** 2 - 4.97)
    )
    np.testing.assert_allclose(channel.nlos_loss_db(at(2000.0)), [blocked], atol=1e-4)
    np.testing.assert_allclose(channel.los_probability(at(3.0, 10.0, 1010.0)), [1.0, 1.0, math.exp(-1)])


# The received powers of ns-3's three-gpp-propagation-loss-model-test-suite.cc, 5 GHz, 0 dBm sent.
NS3 = [
    (RMa, "always", {10: 77.3784, 100: 87.2965, 1000: 108.5577, 10000: 140.3896}),
    (RMa, "never", {10: 77.3784, 100: 95.7718, 1000: 133.5223, 5000: 160.5169}),
    (UMa, "always", {10: 72.9380, 100: 86.2362, 1000: 109.7252, 5000: 137.6794}),
    (UMa, "never", {10: 82.5131, 100: 106.1356, 1000: 144.7641, 5000: 172.0753}),
    (UMi, "always", {10: 69.8591, 100: 88.4122, 1000: 119.3114, 5000: 147.2696}),
    (UMi, "never", {10: 76.7563, 100: 107.9432, 1000: 143.1886, 5000: 167.8617}),
]


@pytest.mark.parametrize(("kind", "los", "losses"), NS3)
def test_as_ns3_has_it(kind: type[Outdoor38901], los: Any, losses: dict[float, float]) -> None:
    channel = kind(carrier_hz=5e9, los=los)
    found = channel.likely_loss_db(at(*losses))
    np.testing.assert_allclose(found, list(losses.values()), atol=0.011 if kind is not RMa else 0.05)


# basic_pathloss and los_probability of Sionna 2.2.0, 3.5 GHz; its speed of light is 299,792,458 m/s.
SIONNA_M = (10.0, 50.0, 200.0, 500.0, 1000.0, 3000.0, 4900.0)
SIONNA: list[tuple[type[Outdoor38901], list[float], list[float], list[float]]] = [
    (
        UMa,
        [69.8399, 77.2122, 89.5695, 98.2692, 109.4065, 128.4871, 137.0097],
        [79.415, 92.5108, 114.462, 129.9158, 141.666, 160.3078, 168.6344],
        [1.0, 0.649402, 0.128048, 0.036345, 0.018, 0.006, 0.003673],
    ),
    (
        UMi,
        [66.761, 79.0896, 91.6112, 107.108, 119.1474, 138.2317, 146.7546],
        [73.4569, 94.1807, 115.2288, 129.2645, 139.8892, 156.7311, 164.2526],
        [1.0, 0.519585, 0.093518, 0.036001, 0.018, 0.006, 0.003673],
    ),
    (
        RMa,
        [74.2804, 79.1466, 90.149, 98.6119, 105.4596, 118.021, 125.6159],
        [74.2804, 83.2624, 103.6434, 118.8227, 130.4243, 148.8488, 157.0799],
        [1.0, 0.960789, 0.826959, 0.612626, 0.371577, 0.050287, 0.007521],
    ),
]


@pytest.mark.parametrize(("kind", "los_db", "nlos_db", "probability"), SIONNA)
def test_as_sionna_has_it(
    kind: type[Outdoor38901], los_db: list[float], nlos_db: list[float], probability: list[float]
) -> None:
    channel = kind(carrier_hz=3.5e9)
    np.testing.assert_allclose(channel.los_loss_db(at(*SIONNA_M)), los_db, atol=0.015)
    np.testing.assert_allclose(channel.nlos_loss_db(at(*SIONNA_M)), nlos_db, atol=1e-3)
    np.testing.assert_allclose(channel.los_probability(at(*SIONNA_M)), probability, atol=1e-6)


def test_as_matlab_documents_it() -> None:
    # nrPathLoss: RMa, 3.5 GHz, LOS, 30 m and 1.5 m, buildings of 7 m, streets of 25 m, 1 km east and 1 km north
    channel = RMa(carrier_hz=3.5e9, bs_height_m=30.0, building_height_m=7.0, street_width_m=25.0)
    assert channel.los_loss_db(at(math.sqrt(2) * 1000))[0] == pytest.approx(110.1615, abs=1e-4)


@given(st.sampled_from(SCENARIOS), st.floats(0.5e9, 30e9), st.floats(1.5, 9.9), st.lists(st.floats(0, 5e3), min_size=2))
def test_farther_is_weaker_and_less_in_sight(
    kind: type[Outdoor38901], carrier_hz: float, ue_height_m: float, distances: list[float]
) -> None:
    channel = kind(carrier_hz=carrier_hz, ue_height_m=ue_height_m)
    d = np.sort(distances)
    los, nlos, probability = channel.los_loss_db(d), channel.nlos_loss_db(d), channel.los_probability(d)
    assert (np.diff(los) >= -1e-3).all()  # RMa's PL2 is laid at d', not at the d3 of d'
    assert (np.diff(nlos) >= -1e-3).all()
    assert (nlos >= los).all()
    assert (np.diff(probability) <= 1e-12).all()
    assert ((probability >= 0) & (probability <= 1)).all()


@pytest.mark.parametrize("kind", SCENARIOS)
def test_nearer_than_the_tables_counts_as_10_m(kind: type[Outdoor38901]) -> None:
    channel = kind()
    for loss in (channel.los_loss_db, channel.nlos_loss_db, channel.los_probability):
        np.testing.assert_array_equal(loss(at(0.0, 3.0, 10.0)), loss(at(10.0, 10.0, 10.0)))
    cell = Cell(channel=kind(), min_distance_m=35.0)
    near = loss_db(cell, np.array([[1.0, 0.0]]), 3)
    assert near == pytest.approx(kind().loss_db(at(35.0), np.array([[1.0, 0.0]]), 3))


@pytest.mark.parametrize("kind", SCENARIOS)
def test_at_every_distance_the_right_share_of_places_is_in_sight(kind: type[Outdoor38901]) -> None:
    channel, seeds = kind(), 3000
    distance_m = at(12.0, 40.0, 100.0, 300.0, 1000.0)
    angle = np.linspace(0.3, 5.0, 5)
    places = np.column_stack((distance_m * np.cos(angle), distance_m * np.sin(angle)))
    share = np.mean([channel.in_sight(distance_m, places, seed) for seed in range(seeds)], axis=0)
    expected = channel.los_probability(distance_m)
    error = np.sqrt(expected * (1 - expected) / seeds)
    assert (np.abs(share - expected) <= 4 * error).all()


def test_neighbours_are_in_sight_together() -> None:
    # Two places with P = 1/2 each and the correlation r are both in sight with 1/4 + arcsin(r) / (2 pi).
    channel = RMa()
    distance_m = np.full(4, 10 + 1000 * math.log(2))
    angle = np.array([0.0, 1.0, 30.0, 60.0]) / distance_m[0]  # 0, 1, 30 and 60 m along the circle
    places = np.column_stack((distance_m * np.cos(angle), distance_m * np.sin(angle)))
    seen = np.array([channel.in_sight(distance_m, places, seed) for seed in range(3000)])
    both = (seen[:, :1] & seen).mean(axis=0)
    r = np.exp(-np.linalg.norm(places - places[0], axis=1) / 60.0)
    np.testing.assert_allclose(both, 0.25 + np.arcsin(r) / (2 * math.pi), atol=4 * 0.009)


def test_the_place_decides_whoever_asks_and_whenever() -> None:
    cell = Cell(radius_m=500.0, channel=UMa())
    world = World(cell, Devices(50), Static())
    first, later = world.conditions(4, 0), world.conditions(4, 9, clock_s=1e4)
    np.testing.assert_array_equal(first.snr, later.snr)
    some = np.array([7, 3, 40])
    np.testing.assert_allclose(
        loss_db(cell, first.positions_m[some], 4), loss_db(cell, first.positions_m, 4)[some], rtol=1e-12
    )
    assert not np.isclose(world.conditions(5, 0).snr, first.snr).any()
    snr_db = 10 * np.log10(first.snr)
    np.testing.assert_allclose(snr_db, 7 + 114 - loss_db(cell, first.positions_m, 4), rtol=1e-9)


@pytest.mark.parametrize(
    ("channel", "distance_m", "sigma_db", "correlation_m"),
    [
        (UMa(los="always"), 100.0, 4.0, 37.0),
        (UMa(los="never"), 100.0, 6.0, 50.0),
        (UMi(los="always"), 100.0, 4.0, 10.0),
        (UMi(los="never"), 100.0, 7.82, 13.0),
        (RMa(los="always"), 100.0, 4.0, 37.0),
        (RMa(los="always", carrier_hz=0.5e9), 1000.0, 6.0, 37.0),  # beyond d' = 550 m
        (RMa(los="never"), 100.0, 8.0, 120.0),
    ],
)
def test_shadowing_has_the_tables_spread_and_correlation(
    channel: Outdoor38901, distance_m: float, sigma_db: float, correlation_m: float
) -> None:
    angle = np.array([0.0, 20.0]) / distance_m
    d = np.full(2, distance_m)
    places = np.column_stack((d * np.cos(angle), d * np.sin(angle)))
    loss = np.array([channel.loss_db(d, places, seed) for seed in range(3000)])
    lag_m = float(np.linalg.norm(places[1] - places[0]))
    assert loss[:, 0].mean() == pytest.approx(channel.likely_loss_db(d)[0], abs=4 * sigma_db / math.sqrt(3000))
    assert loss[:, 0].std() == pytest.approx(sigma_db, rel=0.06)
    assert np.corrcoef(loss.T)[0, 1] == pytest.approx(math.exp(-lag_m / correlation_m), abs=0.06)


def test_without_shadowing_there_are_two_losses() -> None:
    channel = UMi(shadowing=False)
    places = Redrawn().positions(Cell(radius_m=200.0), 500, 1, 0, 0.0)
    d = np.hypot(*places.T)
    loss, sees = channel.loss_db(d, places, 1), channel.in_sight(d, places, 1)
    assert 0 < sees.sum() < 500
    np.testing.assert_array_equal(loss, np.where(sees, channel.los_loss_db(d), channel.nlos_loss_db(d)))


def test_where_only_a_distance_is_known_the_likelier_state_counts() -> None:
    channel = UMa()
    d = at(60.0, 80.0)  # P = 0.570 and 0.443
    expected = [channel.los_loss_db(d)[0], channel.nlos_loss_db(d)[1]]
    np.testing.assert_array_equal(channel.likely_loss_db(d), expected)
    np.testing.assert_array_equal(UMa(los="never").likely_loss_db(d), channel.nlos_loss_db(d))


@pytest.mark.parametrize("kind", SCENARIOS)
def test_the_mean_upload_time_is_the_integral(kind: type[Outdoor38901]) -> None:
    cell, power = Cell(radius_m=400.0, channel=kind()), 5e-9
    edge = np.sqrt(np.linspace(0, 1, 20_001))  # rings of equal area
    d = 400.0 * np.maximum((edge[1:] + edge[:-1]) / 2, 1 / 400)
    z = np.linspace(-8, 8, 801)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    mean_s = 0.0
    for probability, loss, sigma in cell.channel.states(d):  # type: ignore[attr-defined]
        snr = power / cell.noise_w_per_hz * 10 ** (-(loss[:, None] + sigma[:, None] * z) / 10)
        mean_s += float((probability[:, None] * density * cell.model_bits / 3e6 / np.log2(1 + snr)).sum() / len(d))
    assert mean_upload_s(cell, power) == pytest.approx(mean_s, rel=2e-4)


def test_the_normal_quantile() -> None:
    from scipy.stats import norm

    p = np.linspace(0, 1, 101)
    np.testing.assert_allclose(normal_quantile(p), norm.ppf(p), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("uma:carrier_hz=0.4e9", "carrier_hz is 4e+08; UMa takes 5e+08 to 1e+11"),
        ("rma:carrier_hz=40e9", "carrier_hz is 4e+10; RMa takes 5e+08 to 3e+10"),
        ("uma:ue_height_m=13", "ue_height_m is 13; UMa takes 1.5 to less than 13"),
        ("uma:ue_height_m=1", "ue_height_m is 1; UMa takes 1.5 to 13"),
        ("rma:ue_height_m=12", "ue_height_m is 12; RMa takes 1 to 10"),
        ("umi:bs_height_m=5", "bs_height_m is 5; UMi takes 10 to 150"),
        ("rma:street_width_m=60", "street_width_m is 60; RMa takes 5 to 50"),
        ("rma:building_height_m=nan", "building_height_m is nan; give a finite number"),
        ("umi:los=maybe", "los of channel 'umi' is 'maybe'; choose from always, drawn, never"),
        ("uma:h=5", "channel 'uma' has no setting 'h'"),
        ("papr", "unknown channel 'papr'; did you mean 'paper'?"),
        ("paper:x=1", "channel 'paper' takes no settings, but 'x=1' was given"),
    ],
)
def test_bad_settings_get_one_sentence(line: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        CHANNELS.parse(line)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"radius_m": 5001.0}, "radius_m is 5001, but the tables of UMa end at 5000 m; give a smaller cell"),
        ({"shadowing_db": 8.0}, "shadowing_db is 8, but the channel UMa has its own; leave it at 0"),
        ({"path_loss_1km_db": 120.0}, "path_loss_1km_db is 120, but the channel UMa has its own; leave it at 128.1"),
        ({"channel": 3}, "channel is 3; give a channel, such as fedcell.UMa()"),
        ({"rate": 3}, "rate is 3; give a law from SNR to rate, such as fedcell.Mcs64()"),
    ],
)
def test_a_cell_refuses_what_its_channel_would_ignore(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        Cell(**({"channel": UMa()} | fields))


def test_the_tables_of_the_standard() -> None:
    """TR 38.901 V17: slopes of Table 7.4.1-1, correlation distances of 7.6.3.1-2, heights of 7.2-1 to 7.2-3."""
    urban, street, rural = UMa(), UMi(), RMa()
    assert [one.bs_height_m for one in (urban, street, rural)] == [25.0, 10.0, 35.0]
    assert [one.sigma_db for one in (urban, street, rural)] == [(4.0, 6.0), (4.0, 7.82), (4.0, 8.0)]
    assert [one.shadow_m for one in (urban, street, rural)] == [(37.0, 50.0), (10.0, 13.0), (37.0, 120.0)]
    assert [one.sight_m for one in (urban, street, rural)] == [50.0, 50.0, 60.0]
    assert (urban.los_line, street.los_line, rural.far_sigma_db) == ((28.0, 22.0), (32.4, 21.0), 6.0)
    assert (rural.building_height_m, rural.street_width_m) == (5.0, 20.0)
    assert [one.ue_heights_m for one in (urban, street, rural)] == [(1.5, 13.0), (1.5, 22.5), (1.0, 10.0)]
    assert [one.most_carrier_hz for one in (urban, street, rural)] == [100e9, 100e9, 30e9]
    for one in (urban, street, rural):
        assert (one.carrier_hz, one.ue_height_m, one.shadowing) == (3.5e9, 1.5, True)
    assert (tr38901.NEAREST_M, tr38901.FARTHEST_M, tr38901.LIGHT_M_PER_S) == (10.0, 5000.0, 3e8)
