"""Every mistake in a file of devices gets one sentence: what, where, the value, what to do."""

import io
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedcell import Cell, Devices, InputError, World
from fedcell.plan import device_table
from fedcell.plan.device_table import DeviceTable, parse_devices, read_devices
from harness import traced_peak_bytes

HEADER = "upload_s,compute_s\n"
PROFILES = "upload_s,compute_s,profile:cat,profile:dog\n"


def parse(text: str | bytes, cell: Cell | None = None) -> DeviceTable:
    return parse_devices(text if isinstance(text, bytes) else text.encode(), "d.csv", cell)


def complaint(text: str | bytes, cell: Cell | None = None) -> str:
    with pytest.raises(InputError) as caught:
        parse(text, cell)
    message = str(caught.value)
    assert message.startswith("d.csv")
    assert "\n" not in message
    assert len(message) < 400
    return message


# ---------------------------------------------------------------------------------------------- what is understood


@pytest.mark.parametrize(
    "text",
    [
        "upload_s,compute_s\n1.5,2\n0.5,0\n",
        "upload_s,compute_s\n1.5,2\n0.5,0",
        "\ufeffupload_s,compute_s\n1.5,2\n0.5,0\n",
        "upload_s,compute_s\r\n1.5,2\r\n0.5,0\r\n",
        "upload_s,compute_s\r1.5,2\r0.5,0\r",
        '"upload_s","compute_s"\n"1.5","2"\n"0.5","0"\n',
        " upload_s , compute_s \n 1.5 ,\t2\n0.5, 0 \n",
        "\n\nupload_s,compute_s\n\n1.5,2\n   \n0.5,0\n,\n\n",
        "compute_s,upload_s,,\n2,1.5,,\n0,0.5,,\n",
        "compute_s,upload_s,colour\n2,1.5,red\n0,0.5,blue\n",
        '[{"upload_s": 1.5, "compute_s": 2}, {"compute_s": 0, "upload_s": 0.5}]',
        '\ufeff \n[{"upload_s": "1.5", "compute_s": 2.0}, {"upload_s": 0.5, "compute_s": 0}]',
        '{"devices": [{"upload_s": 1.5, "compute_s": 2}, {"upload_s": 0.5, "compute_s": 0}], "cell": 7}',
        '{"upload_s": [1.5, 0.5], "compute_s": [2, 0], "comment": "two phones"}',
        '{"devices": {"upload_s": [1.5, 0.5], "compute_s": [2, 0]}}',
    ],
)
def test_the_same_devices_in_many_forms(text: str) -> None:
    table = parse(text)
    assert table.upload_s.tolist() == [1.5, 0.5]
    assert table.compute_s.tolist() == [2.0, 0.0]
    assert table.names == ("0", "1")
    assert table.must_include is None


def test_an_old_mac_file_may_be_long() -> None:
    assert len(parse("upload_s,compute_s\r" + "1,2\r" * 100_000).names) == 100_000


def test_extremes_of_time_are_kept_as_they_are() -> None:
    table = parse(HEADER + "1e-300,5e-324\n1e300,1e300\n1,1e-310\n")
    assert table.upload_s.tolist() == [1e-300, 1e300, 1.0]
    assert table.compute_s.tolist() == [5e-324, 1e300, 1e-310]


def test_names_are_kept_and_gaps_are_numbered() -> None:
    names = ["=SUM(A1)", "+1", "-2", "@x", "[bold]x[/]", "$x^2$", "日本語", "👩‍👩‍👧", "a,b", 'say "hi"', "=SUM(A1)"]
    quoted = ["".join(('"', name.replace('"', '""'), '"')) for name in [*names, ""]]
    table = parse("device,upload_s,compute_s\n" + "".join(f"{name},1,1\n" for name in quoted))
    assert table.names == (*names, str(len(names)))
    by_json = parse(json.dumps([{"device": name, "upload_s": 1, "compute_s": 1} for name in [*names, None]]))
    assert by_json.names == table.names


def test_a_name_may_be_a_number() -> None:
    assert parse('[{"device": 7, "upload_s": 1, "compute_s": 1}]').names == ("7",)


@pytest.mark.parametrize(
    ("word", "flag"),
    [("true", True), ("TRUE", True), (" yes ", True), ("1", True), ("false", False), ("No", False), ("", False)],
)
def test_words_for_must_include(word: str, flag: bool) -> None:
    table = parse(f"upload_s,compute_s,must_include\n1,1,{word}\n1,1,true\n")
    assert table.must_include is not None
    assert table.must_include.tolist() == [flag, True]


@pytest.mark.parametrize(("value", "flag"), [(True, True), (False, False), (None, False), (1, True), ("no", False)])
def test_must_include_in_json(value: Any, flag: bool) -> None:
    table = parse(json.dumps([{"upload_s": 1, "compute_s": 1, "must_include": value}]))
    assert table.must_include is not None
    assert table.must_include.tolist() == [flag]


def test_unknown_columns_are_told() -> None:
    (note,) = parse("upload_s,compute_s,must_inculde\n1,1,true\n").notes
    assert "ignored the columns 'must_inculde' of d.csv" in note
    assert "must_include" in note


# ----------------------------------------------------------------------------------------------- physical columns


def test_snr_gives_the_upload_time() -> None:
    cell = Cell(bandwidth_hz=2e6, model_bits=1_000_000)
    table = parse("snr_db,compute_s\n10,0\n-30,0\n1000,0\n-1000,0\n", cell)
    by_hand = [1e6 / (2e6 * math.log2(1 + 10)), 1e6 / (2e6 * math.log2(1 + 1e-3)), 0.5 / math.log2(1e100)]
    np.testing.assert_allclose(table.upload_s[:3], by_hand, rtol=1e-12)
    np.testing.assert_allclose(table.upload_s[3], 0.5 * math.log(2) * 1e100, rtol=1e-12)


def test_distance_and_power_give_the_upload_time() -> None:
    table = parse("distance_m,power_dbm_per_mhz,compute_s\n500,7,0\n2000,20,0\n0,7,0\n1,7,0\n")
    for distance_m, power_dbm, upload_s in zip([500, 2000, 1, 1], [7, 20, 7, 7], table.upload_s, strict=True):
        loss_db = 128.1 + 37.6 * math.log10(distance_m / 1000)
        snr = 10 ** ((power_dbm - loss_db + 114) / 10)
        assert upload_s == pytest.approx(50_890 * 32 / (3e6 * math.log2(1 + snr)), rel=1e-12)
    assert table.notes == ()


def test_a_total_power_is_spread_over_the_band() -> None:
    cell = Cell(bandwidth_hz=2e6)
    table = parse("distance_m,power_dbm,compute_s\n500,23,0\n2000,20,0\n", cell)
    snrs = np.asarray(table.snr)
    for distance_m, power_dbm, snr, upload_s in zip([500, 2000], [23, 20], snrs, table.upload_s, strict=True):
        loss_db = 128.1 + 37.6 * math.log10(distance_m / 1000)
        by_hand = 1e-3 * 10 ** ((power_dbm - loss_db) / 10) / (1e-9 * 10 ** (-114 / 10) * 2e6)  # P h / (N0 B)
        assert snr == pytest.approx(by_hand, rel=1e-12)
        assert upload_s == pytest.approx(50_890 * 32 / (2e6 * math.log2(1 + by_hand)), rel=1e-12)
    assert table.notes == ()
    # 23 dBm over 2 MHz is 20 dBm/MHz, up to rounding of the decibels.
    density = parse("distance_m,power_dbm_per_mhz,compute_s\n500,19.98970004336019,0\n", cell)
    assert table.upload_s[0] == pytest.approx(density.upload_s[0], rel=1e-12)


def test_a_rate_gives_the_upload_time_and_no_snr() -> None:
    table = parse("rate_bps,compute_s\n1e6,0\n8e6,0\n", Cell(model_bits=2_000_000))
    assert table.upload_s.tolist() == [2.0, 0.25]
    assert table.snr is None
    assert parse("upload_s,compute_s\n1,1\n").snr is None
    assert np.asarray(parse("snr_db,compute_s\n10,1\n").snr) == pytest.approx([10.0], rel=1e-15)


def test_a_power_that_changes_nothing_is_told() -> None:
    (note,) = parse("snr_db,power_dbm,compute_s\n10,23,1\n").notes
    assert note == "the column power_dbm is not used: snr_db already says what it is for"


def test_samples_and_speeds_give_the_mean_compute_time() -> None:
    table = parse("upload_s,samples,seconds_per_sample,samples_per_second\n1,3000,0.002,4000\n1,10,0,2\n")
    np.testing.assert_allclose(table.compute_s, [3000 * 0.002 + 3000 / 4000, 5.0], rtol=1e-14)


def test_a_table_has_the_worlds_physics_to_the_bit() -> None:
    rng = np.random.default_rng(5)
    devices = Devices(
        samples=rng.integers(1, 10_000, 500),
        seconds_per_sample=rng.exponential(2e-3, 500),
        samples_per_second=rng.exponential(4000.0, 500),
    )
    world = World(Cell(), devices).conditions(3)
    columns = {
        "distance_m": world.distance_m.tolist(),
        **{name: getattr(devices, name).tolist() for name in ("samples", "seconds_per_sample", "samples_per_second")},
    }
    table = parse(json.dumps(columns))
    assert table.compute_s.tolist() == world.expected_compute_s.tolist()
    assert table.upload_s.tolist() == world.upload_s.tolist()


def test_the_papers_values_stand_in_and_are_told() -> None:
    table = parse("distance_m,samples\n500,3000\n")
    full = parse("distance_m,power_dbm_per_mhz,samples,seconds_per_sample,samples_per_second\n500,7,3000,0.002,4000\n")
    assert table.upload_s.tolist() == full.upload_s.tolist()
    assert table.compute_s.tolist() == full.compute_s.tolist()
    assert full.notes == ()
    for column, note in zip(
        ("power_dbm_per_mhz", "seconds_per_sample", "samples_per_second"), table.notes, strict=True
    ):
        assert note.startswith(f"no column {column}: took ")


@pytest.mark.parametrize(
    ("text", "cell", "words"),
    [
        ("snr_db,compute_s\n1,1\n", Cell(bandwidth_hz=5e-324), "line 2: snr_db is '1', which gives upload_s = inf"),
        ("distance_m,compute_s\n1000,1\n", Cell(path_loss_exponent=1e308), "'1000', which gives upload_s = nan"),
        ("distance_m,compute_s\n1,1\n9,1\n", Cell(path_loss_1km_db=9000.0), "line 2: distance_m is '1', which gives"),
        ("distance_m,compute_s\n1e9,1\n", Cell(path_loss_exponent=1000), "upload_s = inf, beyond 1e-300 to 1e"),
    ],
)
def test_physics_beyond_the_floats(text: str, cell: Cell, words: str) -> None:
    assert words in complaint(text, cell)


# ------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("nan", "line 3: upload_s is 'nan'; give a number"),
        ("NaN", "line 3: upload_s is 'NaN'; give a number"),
        ("inf", "line 3: upload_s is 'inf': at a rate of zero the model never arrives; leave the device out"),
        ("-inf", "line 3: upload_s is '-inf'"),
        ("0", "line 3: upload_s is '0'; give a number between 1e-300 and 1e+300"),
        ("-1", "line 3: upload_s is '-1'; give a number between 1e-300 and 1e+300"),
        ("1e301", "line 3: upload_s is '1e301'; give a number between"),
        ("1e400", "line 3: upload_s is '1e400'; give a number between"),
        ("1e-310", "line 3: upload_s is '1e-310'; give a number between"),
        ("5e-324", "line 3: upload_s is '5e-324'; give a number between"),
        ("", "line 3: upload_s is missing; give a number"),
        ("fast", "line 3: upload_s is 'fast'; give a number"),
        ("0x10", "line 3: upload_s is '0x10'; give a number"),
        ("1_5", "line 3: upload_s is '1_5'; give a number"),
        ("1 5", "line 3: upload_s is '1 5'; give a number"),
        ("true", "line 3: upload_s is 'true'; give a number"),
        ('"1,5"', "line 3: upload_s is '1,5'; give a number with a decimal point"),
        ("1\0", "line 3 is not UTF-8 text (byte 0x00); save it as UTF-8"),
        ("\x1b[2J", r"line 3: upload_s is '\x1b[2J'; give a number"),
        ("x" * 5000, "line 3: upload_s is '" + "x" * 57 + "'...; give a number"),
    ],
)
def test_a_bad_number_names_its_line_column_and_value(cell: str, words: str) -> None:
    assert words in complaint(f"{HEADER}1,1\n{cell},1\n2,2\n")


@pytest.mark.parametrize(
    ("column", "value", "low", "high"),
    [
        ("compute_s", "-1", "0", "1e+300"),
        ("compute_s", "inf", "0", "1e+300"),
        ("snr_db", "-1e9", "-1000", "1000"),
        ("snr_db", "-inf", "-1000", "1000"),
        ("distance_m", "-3", "0", "1e+09"),
        ("power_dbm_per_mhz", "1001", "-1000", "1000"),
        ("samples", "0", "1", "1e+15"),
        ("seconds_per_sample", "-0.1", "0", "1e+15"),
        ("samples_per_second", "0", "1e-15", "1e+300"),
    ],
)
def test_every_column_has_its_bounds(column: str, value: str, low: str, high: str) -> None:
    good = {"distance_m": "1", "samples": "1"}
    if column == "snr_db":
        del good["distance_m"]
    if column == "compute_s":
        del good["samples"]
    cells = good | {column: value}
    said = complaint(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    assert said == f"d.csv line 2: {column} is {value!r}; give a number between {low} and {high}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "d.csv is empty; give a header line and at least one device"),
        (" \n\t\n", "d.csv is empty"),
        ("\ufeff", "d.csv is empty"),
        (HEADER, "d.csv has no devices; give at least one"),
        (HEADER + "\n\n,\n", "d.csv has no devices"),
        (
            '""',
            "d.csv has no upload column upload_s or rate_bps or snr_db or distance_m; add one (its columns",
        ),
        (HEADER + "1,2,3\n", "line 2 has 3 cells but the header has 2; give one cell a column, and decimals with a p"),
        (HEADER + "1,5,1,5\n", "line 2 has 4 cells but the header has 2"),
        (HEADER + "1,1\n1\n", "line 3 has 1 cells but the header has 2"),
        (HEADER + "\n\n1,1,\n", "line 4 has 3 cells"),
        ("upload_s\n1\n", "no compute column compute_s or samples; add one (its columns are 'upload_s')"),
        (
            "uplaod_s,compute_s\n1,1\n",
            "no upload column upload_s or rate_bps or snr_db or distance_m; rename 'uplaod_s' to upload_s",
        ),
        ("upload_s,COMPUTE_S\n1,1\n", "rename 'COMPUTE_S' to compute_s"),
        ("distance,compute_s\n1,1\n", "rename 'distance' to distance_m"),
        ("snr,compute_s\n1,1\n", "rename 'snr' to snr_db"),
        ("upload_s,sample\n1,1\n", "rename 'sample' to samples"),
        ("upload_s,samples_per_second\n1,1\n", "add one (its columns are 'upload_s', 'samples_per_second')"),
        ("upload_s,compute_s,upload_s\n1,1,1\n", "has the column 'upload_s' twice; keep one"),
        ("upload_s,compute_s,x,x\n1,1,1,1\n", "has the column 'x' twice; keep one"),
        ("upload_s,rate_bps,compute_s\n1,1,1\n", "has both upload_s and rate_bps, which say the same; keep one"),
        ("distance_m,power_dbm,power_dbm_per_mhz,compute_s\n1,1,1,1\n", "has both power_dbm and power_dbm_per_mhz"),
        ("rate_bps,compute_s\n0,1\n", "line 2: rate_bps is '0'; give a number between 1e-15 and 1e+300"),
        ("upload_s,snr_db,compute_s\n1,1,1\n", "has both upload_s and snr_db, which say the same; keep one"),
        ("upload_s,compute_s,samples\n1,1,1\n", "has both compute_s and samples"),
        ("upload_s;compute_s\n1;1\n", "separate the cells by commas (the header is 'upload_s;compute_s')"),
        ("upload_s\tcompute_s\n1\t1\n", r"separate the cells by commas (the header is 'upload_s\tcompute_s')"),
        (HEADER + '"1,1\n', "line 2 is not valid CSV (unexpected end of data); correct its quotes"),
        ('"upload_s,compute_s\n1,1\n', "is not valid CSV"),
        (HEADER + '"1"2,1\n', "line 2 is not valid CSV"),
        (HEADER + '"' + "1\n" * 100_000, "is not valid CSV (field larger than field limit"),
        (",".join(f"c{i}" for i in range(102)), "has 102 columns; give at most 100"),
        (
            "upload_s,compute_s," + ",".join(f"profile:{i}" for i in range(1001)),
            "1,001 profile columns; give at most 1,000",
        ),
        (PROFILES + "1,1,3,x\n", "line 2: profile:dog is 'x'; give a number"),
        (PROFILES + '1,1,"1,5",1\n', "line 2: profile:cat is '1,5'; give a number with a decimal point"),
        (PROFILES + "1,1,nan,1\n", "line 2: profile:cat is 'nan'; give a number"),
        (PROFILES + "1,1,1,-inf\n", "line 2: profile:dog is '-inf'; give a number between -1e+15 and 1e+15"),
        (
            PROFILES + "1,1,,\n1,1,3,\n",
            "line 3: profile:dog is missing but other profile columns are not; give all, or",
        ),
        (PROFILES + "1,1,1,0\n1,1,0,0\n", "line 3: its profile is 0 throughout; give other numbers, or leave all emp"),
        ("upload_s,compute_s,profile:a,profile:a\n1,1,1,1\n", "has the column 'profile:a' twice; keep one"),
        ("upload_s,compute_s,profile:" + "a" * 93 + "\n1,1,1\n", "aaa'...; give it a name of at most 100 printable"),
        ('{"upload_s": [1], "compute_s": [1], "profile:\\u001b": [1]}', r"has a column 'profile:\x1b'; give it a name"),
        ('{"upload_s": [1], "compute_s": [1], "profile:a": 1}', "profile:a is 1; give a list with an entry for each"),
        ('{"upload_s": [1, 1], "compute_s": [1, 1], "profile:a": [1]}', "has 2 entries but profile:a has 1"),
        ('[{"upload_s": 1, "compute_s": 1, "profile:a": true}]', "device 0: profile:a is True; give a number"),
        ('[{"upload_s": 1, "compute_s": 1, "profile:a": [1, 2]}]', "device 0: profile:a is a list; give a number"),
        ("upload_s,compute_s,must_include\n1,1,maybe\n", "line 2: must_include is 'maybe'; write true or false"),
        ("device,upload_s,compute_s\na\tb,1,1\n", r"line 2: device is 'a\tb'; give a name of at most 1000 printable"),
        ("device,upload_s,compute_s\n\x1b[31mred,1,1\n", r"line 2: device is '\x1b[31mred'; give a name"),
        ('device,upload_s,compute_s\n"two\nlines",1,1\n', r"line 3: device is 'two\nlines'; give a name"),
        ("device,upload_s,compute_s\n" + "n" * 1001 + ",1,1\n", "'...; give a name of at most 1000"),
        ("5", "its columns are '5'"),
        ("null", "its columns are 'null'"),
        ("{", "line 1 is not valid JSON (Expecting property name"),
        ("[\n{,\n", "line 2 is not valid JSON"),
        ("[1 2]", "line 1 is not valid JSON"),
        ("[]", "d.csv has no devices; give at least one"),
        ("{}", "its columns are none"),
        ("[{}]", "its columns are none"),
        ('{"devices": []}', "d.csv has no devices"),
        ('{"devices": 5}', 'devices is 5; give a list such as [{"upload_s": 1, ...}, ...]'),
        ('{"devices": null}', "devices is missing; give a list"),
        ('{"devices": "abc"}', "devices is 'abc'; give a list"),
        ('{"upload_s": 1, "compute_s": 2}', "upload_s is 1; give a list with an entry for each device"),
        ('{"upload_s": [1, 2], "compute_s": [1]}', "upload_s has 2 entries but compute_s has 1"),
        ('{"upload_s": [], "compute_s": []}', "d.csv has no devices"),
        ('{"upload_s": [1], "upload_s": [2], "compute_s": [1]}', "an object has 'upload_s' twice; keep one"),
        ('[{"upload_s": 1, "compute_s": 1}, 5]', "device 1: it is 5; give an object such as"),
        ('[{"upload_s": 1, "compute_s": 1}, [1, 1]]', "device 1: it is a list; give an object"),
        ('[{"upload_s": 1, "compute_s": 1}, {"upload_s": 1}]', "device 1: compute_s is missing; give a number"),
        ('[{"upload_s": NaN, "compute_s": 1}]', "device 0: upload_s is nan; give a number"),
        ('[{"upload_s": Infinity, "compute_s": 1}]', "device 0: upload_s is inf: at a rate of zero"),
        ('[{"upload_s": true, "compute_s": 1}]', "device 0: upload_s is True; give a number"),
        ('[{"upload_s": null, "compute_s": 1}]', "device 0: upload_s is missing; give a number"),
        ('[{"upload_s": [1], "compute_s": 1}]', "device 0: upload_s is a list; give a number"),
        ('[{"upload_s": {"a": 1}, "compute_s": 1}]', "device 0: upload_s is an object; give a number"),
        ('[{"upload_s": 1' + "0" * 400 + ', "compute_s": 1}]', "'...; give a number between 1e-300 and 1e+300"),
        ('[{"upload_s": 1' + "0" * 9000 + ', "compute_s": 1}]', "not usable JSON (too deep, or a number too long)"),
        ("[" * 100_000, "not usable JSON (too deep, or a number too long)"),
        ('[{"upload_s": ' + "[" * 800 + "]" * 800 + ', "compute_s": 1}]', "device 0: upload_s is a list"),
        ('[{"device": "\\ud800", "upload_s": 1, "compute_s": 1}]', r"device 0: device is '\ud800'; give a name"),
        ('[{"device": "\\u009b31m", "upload_s": 1, "compute_s": 1}]', r"device 0: device is '\x9b31m'; give a name"),
        ('[{"device": [], "upload_s": 1, "compute_s": 1}]', "device 0: device is a list; give a name"),
        ('[{"must_include": 1.5, "upload_s": 1, "compute_s": 1}]', "device 0: must_include is 1.5; write true"),
        ('[{"\\ud800": 1, "compute_s": 1}]', r"its columns are '\ud800', 'compute_s'"),
        (b"\xff\xfeu\0p\0", "line 1 is not UTF-8 text (byte 0xff); save it as UTF-8"),
        ("upload_s,compute_s\n1,1\n".encode("utf-16-le"), "line 1 is not UTF-8 text (byte 0x00)"),
        (b"device,upload_s,compute_s\nJos\xe9,1,1\n", "line 2 is not UTF-8 text (byte 0xe9); save it as UTF-8"),
        (bytes(range(1, 256)), "line 2 is not UTF-8 text (byte 0x80)"),
        (b"\xef\xbb\xbfupload_s,compute_s\n\xe9", "line 2 is not UTF-8 text (byte 0xe9)"),
    ],
)
def test_a_bad_file_gets_one_sentence(text: str | bytes, words: str) -> None:
    assert words in complaint(text)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("content", "size", "words"),
    [
        ("b'a,' * 50_000_000", 100e6, "line 1 is longer than 100,000 characters; give a line for each device"),
        ("b'a' * 100_000_000", 100e6, "line 1 is longer than 100,000 characters"),
        ("b'upload_s,compute_s\\n' + b'1,' * 50_000_000", 100e6, "line 2 is longer than 100,000 characters"),
        ("b'[' + b'{},' * 30_000_000", 90e6, "more than 5,000,000 objects and lists; split it"),
        (
            "b'[%s]' % b','.join(b'{\"a%d\":1}' % i for i in range(20_000))",
            0.2e6,
            "has 20,000 columns; give at most 100",
        ),
        (
            "b'[{%s},%s]' % (b','.join(b'\"profile:%d\":1' % i for i in range(1000)), "
            "b','.join([b'{\"upload_s\":1,\"compute_s\":1}'] * 50_000))",
            50e6,
            "1,000 profile columns for 50,001 devices or more; give at most 20,000,000 numbers in all",
        ),
    ],
    ids=["cells", "letters", "row", "objects", "keys", "profiles"],
)
def test_a_gigantic_line_takes_no_more_memory_than_its_text(content: str, size: float, words: str) -> None:
    before = f"""
from fedcell.errors import InputError
from fedcell.plan.device_table import parse_devices
content = {content}
"""
    code = f"""
try:
    parse_devices(content, "d.csv", None)
except InputError as refused:
    assert {words!r} in str(refused), refused
else:
    raise AssertionError("it was read")
"""
    assert traced_peak_bytes(before, code) < size + 50e6


def test_counts_and_shares_of_labels_are_the_same_profile() -> None:
    counts = parse(PROFILES + "1,1,30,10\n1,1, ,\n1,1,0,5\n")
    assert counts.profiles is not None
    np.testing.assert_array_equal(counts.profiles, [[0.75, 0.25], [np.nan, np.nan], [0.0, 1.0]])
    shares = parse(PROFILES + "1,1,0.75,0.25\n1,1,,\n1,1,0,1\n")
    np.testing.assert_array_equal(shares.profiles, counts.profiles)
    assert counts.notes == ()
    assert parse(HEADER + "1,1\n").profiles is None


def test_a_gradient_keeps_its_signs() -> None:
    table = parse(PROFILES + "1,1,3,-1\n1,1,-1e15,0\n")
    np.testing.assert_array_equal(table.profiles, [[0.75, -0.25], [-1.0, 0.0]])


@pytest.mark.parametrize(
    "document",
    [
        [{"profile:cat": 30, "profile:dog": "10"}, {}, {"profile:cat": 0, "profile:dog": 5}],
        [
            {"profile:cat": 30, "profile:dog": 10},
            {"profile:cat": None, "profile:dog": ""},
            {"profile:cat": 0, "profile:dog": 1},
        ],
        {"profile:cat": [30, None, 0], "profile:dog": [10, None, 5]},
    ],
)
def test_profiles_in_json(document: Any) -> None:
    times = {"upload_s": 1, "compute_s": 1}
    if isinstance(document, dict):
        document = {name: [value] * 3 for name, value in times.items()} | document
    else:
        document = [times | one for one in document]
    table = parse(json.dumps(document))
    np.testing.assert_array_equal(table.profiles, [[0.75, 0.25], [np.nan, np.nan], [0.0, 1.0]])


def test_a_column_that_is_nearly_a_profile_is_named() -> None:
    (note,) = parse("upload_s,compute_s,profile_cat\n1,1,3\n").notes
    assert note.startswith("ignored the columns 'profile_cat' of d.csv; known are device, ")
    assert note.endswith(", profile:NAME")


def test_limits_of_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_table, "MAX_PROFILE_NUMBERS", 6)
    assert len(parse(PROFILES + "1,1,1,1\n" * 3).names) == 3
    lists = json.dumps({name: [1] * 4 for name in PROFILES.strip().split(",")})
    for text in (PROFILES + "1,1,1,1\n" * 4, lists):
        assert "2 profile columns for 4 devices or more; give at most 6 numbers in all" in complaint(text)


def test_limits_of_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device_table, "MAX_ROWS", 3)
    assert len(parse(HEADER + "1,1\n" * 3).names) == 3
    assert "more than 3 devices; split it" in complaint(HEADER + "1,1\n" * 4)
    monkeypatch.setattr(device_table, "MAX_BYTES", 2**20)
    big = tmp_path / "d.csv"
    big.write_bytes(HEADER.encode() + b"1,1\n" * 2**18)
    with pytest.raises(InputError, match=r"d\.csv is larger than 1 MiB; split it or drop columns"):
        read_devices(big)


# ------------------------------------------------------------------------------------------------ where it comes from


@pytest.mark.parametrize("path", ["missing.csv", ".", "", "x" * 5000])
def test_what_cannot_be_read(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^cannot read '.*': .*; give a CSV or JSON file of devices, or -$"):
        read_devices(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(HEADER)
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied; give a CSV"):
        read_devices(path)


def test_the_null_device_is_empty() -> None:
    with pytest.raises(InputError, match=f"^{re.escape(os.devnull)} is empty"):
        read_devices(os.devnull)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"upload_s,compute_s\n1,2\n")))
    assert read_devices("-").compute_s.tolist() == [2.0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="standard input is empty"):
        read_devices("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed; give"):
        read_devices("-")


def test_reading_leaves_no_global_setting_behind() -> None:
    import csv

    before = csv.field_size_limit()
    parse(HEADER + "1,1\n")
    assert csv.field_size_limit() == before


# ----------------------------------------------------------------------------------------------------------- fuzzing


def only_input_errors(content: bytes) -> None:
    try:
        table = parse_devices(content, "fuzz")
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert len(table.names) == table.upload_s.size == table.compute_s.size > 0
        assert np.isfinite(table.upload_s).all()
        assert (table.upload_s > 0).all()
        assert (table.compute_s >= 0).all()
        if table.profiles is not None:
            unknown = np.isnan(table.profiles).all(axis=1)
            np.testing.assert_allclose(np.abs(table.profiles[~unknown]).sum(axis=1), 1.0)
        "".join(table.names).encode()
    assert "\n" not in message


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    only_input_errors(content)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    only_input_errors(text.encode("utf-8", "surrogatepass"))


CSV_PARTS = st.sampled_from(
    [
        *device_table.COLUMNS,
        "profile:a",
        "profile:",
        *',\n"; \r\t\0{[é',
        "1",
        "-1",
        "1e300",
        "1e-300",
        "nan",
        "inf",
        "",
        "true",
    ]
)


@given(st.lists(CSV_PARTS, max_size=30).map("".join))
@settings(max_examples=300)
def test_anything_like_csv(text: str) -> None:
    only_input_errors(text.encode())
    only_input_errors((HEADER + text).encode())


@given(
    st.sampled_from(
        [
            b"device,upload_s,compute_s,must_include\na,1,2,true\nb,3,4,\n",
            b"upload_s,compute_s,profile:0,profile:1\n1,2,3,4\n3,4,,\n",
            b'[{"device": "a", "upload_s": 1, "compute_s": 2}, {"upload_s": 3, "compute_s": 4}]',
            b'{"devices": {"distance_m": [1, 2], "samples": [3, 4], "power_dbm_per_mhz": [7, 7]}}',
        ]
    ),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3), st.binary(max_size=3)), max_size=3),
)
@settings(max_examples=300)
def test_good_files_gone_bad(content: bytes, cuts: list[tuple[int, int, bytes]]) -> None:
    for at, removed, added in cuts:
        content = content[:at] + added + content[at + removed :]
    only_input_errors(content)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*device_table.COLUMNS, "profile:a", "devices", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
@example([{"upload_s": 10**400, "compute_s": 1}])
@settings(max_examples=300)
def test_any_json(document: Any) -> None:
    only_input_errors(json.dumps(document).encode())
    only_input_errors(json.dumps([document]).encode())
    only_input_errors(json.dumps({"devices": document}).encode())
    only_input_errors(json.dumps([{"upload_s": document, "compute_s": 1, "device": document}]).encode())
