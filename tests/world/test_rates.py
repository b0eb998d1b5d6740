import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcell.errors import InputError
from fedcell.world import RATES, Cell, Devices, Mcs64, Mcs256, Shannon, Static, World, mean_upload_s
from fedcell.world.rates import TABLE_1, TABLE_2

# Spectral efficiencies as TS 38.214 prints them.
PRINTED_1 = [
    *(0.2344, 0.3066, 0.3770, 0.4902, 0.6016, 0.7402, 0.8770, 1.0273, 1.1758, 1.3262),
    *(1.3281, 1.4766, 1.6953, 1.9141, 2.1602, 2.4063, 2.5703),
    *(2.5664, 2.7305, 3.0293, 3.3223, 3.6094, 3.9023, 4.2129, 4.5234, 4.8164, 5.1152, 5.3320, 5.5547),
]
PRINTED_2 = [
    *(0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.6953, 1.9141, 2.1602, 2.4063, 2.5703),
    *(2.7305, 3.0293, 3.3223, 3.6094, 3.9023, 4.2129, 4.5234, 4.8164, 5.1152),
    *(5.3320, 5.5547, 5.8906, 6.2266, 6.5703, 6.9141, 7.1602, 7.4063),
]


def ratio(db: float) -> float:
    return 10 ** (db / 10)


@pytest.mark.parametrize(("table", "printed"), [(TABLE_1, PRINTED_1), (TABLE_2, PRINTED_2)])
def test_the_tables_are_the_standards(table: tuple[tuple[int, float, float], ...], printed: list[float]) -> None:
    np.testing.assert_allclose([bits * rate / 1024 for bits, rate, _ in table], printed, atol=5.1e-5)
    thresholds = [threshold for *_, threshold in table]
    assert thresholds == sorted(thresholds)


def test_equal_schemes_of_both_tables_need_the_same_snr() -> None:
    needs = {row[:2]: row[2] for row in TABLE_1}
    common = [row for row in TABLE_2 if row[:2] in needs]
    assert len(common) == 20
    assert all(needs[row[:2]] == row[2] for row in common)


def slow_efficiency(table: tuple[tuple[int, float, float], ...], snr_db: float, gap_db: float) -> float:
    return max([bits * rate / 1024 for bits, rate, need in table if snr_db >= need + gap_db], default=0.0)


@given(st.sampled_from([Mcs64, Mcs256]), st.lists(st.floats(-20, 40), min_size=1), st.sampled_from([0.0, 1.5]))
def test_the_best_scheme_that_the_snr_allows(kind: type[Mcs64], snr_db: list[float], gap_db: float) -> None:
    found = kind(gap_db).efficiency(np.array([ratio(db) for db in snr_db]))
    again = [10 * math.log10(ratio(db)) for db in snr_db]  # the same rounding
    assert found.tolist() == [slow_efficiency(kind.table, db, gap_db) for db in again]
    assert (found <= np.log2(1 + np.array([ratio(db) for db in snr_db]))).all()


def test_a_scheme_begins_at_its_threshold() -> None:
    need_db = TABLE_1[9][2]
    np.testing.assert_allclose(
        Mcs64().efficiency(np.array([ratio(need_db - 1e-9), ratio(need_db + 1e-9)])), [1.1758, 1.3262], atol=5e-5
    )
    assert Mcs64().efficiency(np.array([0.0, ratio(-0.98), np.inf])).tolist() == [0.0, 0.0, 6 * 948 / 1024]


def test_a_gap_to_shannon() -> None:
    snr = np.array([0.0, 1.0, 1e3])
    np.testing.assert_array_equal(Shannon().efficiency(snr), np.log1p(snr) / math.log(2))
    np.testing.assert_allclose(Shannon(gap_db=3.0).efficiency(snr), np.log2(1 + snr / 10**0.3), rtol=1e-12)
    wide = Cell(rate=Shannon(gap_db=3.0))
    near = Cell(noise_w_per_hz=Cell.noise_w_per_hz * 10**0.3)  # the same as twice the noise
    assert mean_upload_s(wide) == pytest.approx(mean_upload_s(near), rel=1e-12)


def test_a_device_below_the_lowest_scheme_is_not_there() -> None:
    shannon = World(Cell(radius_m=1400.0), Devices(200), Static()).conditions(1, 0)
    coded = World(Cell(radius_m=1400.0, rate=Mcs256()), Devices(200), Static()).conditions(1, 0)
    np.testing.assert_array_equal(coded.snr, shannon.snr)
    assert shannon.available is None
    assert coded.available is not None
    np.testing.assert_array_equal(coded.available, 10 * np.log10(coded.snr) >= -0.97)
    assert 0 < coded.available.sum() < 200
    np.testing.assert_array_equal(np.isinf(coded.upload_s), ~coded.available)
    there = coded.available
    np.testing.assert_allclose(coded.upload_s[there], 1_628_480 / (3e6 * coded.spectral_efficiency[there]))
    assert (coded.upload_s[there] > shannon.upload_s[there]).all()
    all_near = World(Cell(radius_m=300.0, rate=Mcs256()), Devices(200)).conditions(1, 0)
    assert all_near.available is None


def test_the_mean_needs_a_rate_everywhere() -> None:
    with pytest.raises(InputError, match="the mean upload time is infinite with an MCS table or a trace"):
        mean_upload_s(Cell(rate=Mcs64()))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("mcs128", "unknown rate 'mcs128'; did you mean 'mcs256'?"),
        ("shannon:gap_db=-1", "gap_db is -1.0; give a finite number of at least 0"),
        ("mcs64:gap=1", "rate 'mcs64' has no setting 'gap'; did you mean 'gap_db'?"),
    ],
)
def test_bad_rates_get_one_sentence(line: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        RATES.parse(line)
