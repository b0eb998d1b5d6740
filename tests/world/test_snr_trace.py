import math
import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcell as fc
from fedcell.errors import InputError
from fedcell.world import CHANNELS, Cell, Devices, SnrTrace, World, loss_db, mean_upload_s, path_loss_db, snr_trace
from fedcell.world.snr_trace import write_trace

HEADER = "time_s,device,snr_db\n"


def slow_snr_db(rows: list[tuple[float, float]], t: float, between: str) -> float:
    """The SNR of one device at time t, by looking at its rows one after the other."""
    rows = sorted(rows)
    before = [row for row in rows if row[0] <= t] or rows[:1]
    after = [row for row in rows if row[0] > t]
    (t0, now), following = before[-1], after[0] if after else None
    if between == "step" or following is None or t <= t0:
        return now
    done = (t - t0) / (following[0] - t0)
    return (1 - done) * now + done * following[1]


times = st.sampled_from([0.0, 0.1, 1.0, 2.5, 7.0, 30.0])
levels = st.one_of(st.just(math.nan), st.floats(-30, 40))


@given(
    st.lists(st.dictionaries(times, levels, min_size=1), min_size=1, max_size=4),
    st.one_of(times, st.floats(0, 100)),
    st.sampled_from(["step", "linear"]),
    st.sampled_from(["hold", "repeat"]),
    st.randoms(use_true_random=False),
)
def test_every_device_has_the_snr_of_its_rows(
    tmp_path_factory: pytest.TempPathFactory,
    devices: list[dict[float, float]],
    t: float,
    between: Any,
    end: Any,
    random: Any,
) -> None:
    lines = [
        (time, i, "" if math.isnan(db) else repr(db)) for i, rows in enumerate(devices) for time, db in rows.items()
    ]
    last = max(time for time, *_ in lines)
    if end == "repeat" and last == 0:
        return
    random.shuffle(lines)
    path = tmp_path_factory.mktemp("trace") / "links.csv"
    path.write_text(HEADER + "".join(f"{time!r},{i},{db}\n" for time, i, db in lines))
    found = SnrTrace(str(path), between, end).snr_db(len(devices), t)
    shown = t % last if end == "repeat" else t
    expected = [slow_snr_db(list(rows.items()), shown, between) for rows in devices]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_cell_with_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text(HEADER + "0,0,10\n0,1,20\n60,1,\n90,1,0\n0,2,5\n")
    world = World(Cell(channel=SnrTrace(str(path))), Devices(2))  # device 2 is not in the cell
    first, gone, back = (world.conditions(1, r, clock_s) for r, clock_s in enumerate((0.0, 60.0, 1e6)))
    np.testing.assert_allclose(10 * np.log10(first.snr), [10.0, 20.0])
    assert first.available is None
    assert gone.available is not None
    assert gone.available.tolist() == [True, False]
    assert (gone.snr[1], gone.upload_s[1]) == (0.0, math.inf)
    np.testing.assert_allclose(back.upload_s, 1_628_480 / (3e6 * np.log2([11.0, 2.0])))
    np.testing.assert_array_equal(first.positions_m, World(devices=Devices(2)).conditions(1, 0).positions_m)


def test_fading_comes_on_top(tmp_path: Path) -> None:
    write_trace(tmp_path / "links.csv", [0.0], [[10.0] * 5])
    still = World(Cell(channel=SnrTrace(str(tmp_path / "links.csv"))), Devices(5)).conditions(1, 0)
    faded = World(Cell(channel=SnrTrace(str(tmp_path / "links.csv")), fading="rayleigh"), Devices(5)).conditions(1, 0)
    plain, paper = (
        World(Cell(fading="rayleigh"), Devices(5)).conditions(1, 0),
        World(devices=Devices(5)).conditions(1, 0),
    )
    np.testing.assert_allclose(faded.snr / still.snr, plain.snr / paper.snr)


def test_a_file_written_is_the_file_read(tmp_path: Path) -> None:
    time_s, snr_db = np.array([0.0, 0.5, 3.25]), np.random.default_rng(1).normal(10, 8, (3, 4))
    snr_db[1, 2] = np.nan
    write_trace(tmp_path / "links.csv", time_s, snr_db)
    for t, row in zip(time_s, snr_db, strict=True):
        np.testing.assert_array_equal(SnrTrace(str(tmp_path / "links.csv")).snr_db(4, float(t)), row)
    with pytest.raises(InputError, match=re.escape("time_s has shape (2,) and snr_db (3, 4); give (T,) and (T, M)")):
        write_trace(tmp_path / "other.csv", time_s[:2], snr_db)
    assert not (tmp_path / "other.csv").exists()


def test_columns_in_any_order_spaces_and_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_bytes("\ufeffsnr_db , device,time_s\r\n 7.5 ,0 , 1e1\r\n\r\n".encode())
    assert SnrTrace(str(path)).snr_db(1, 3.0).tolist() == [7.5]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "links.csv line 1 is ''; begin with time_s,device,snr_db"),
        ("time_s,device\n", "links.csv line 1 is 'time_s,device'; begin with time_s,device,snr_db"),
        ("time_s,device,snr\n", "links.csv has a column 'snr'; did you mean 'snr_db'?"),
        ("time_s,device,device\n", "links.csv line 1 is 'time_s,device,device'; begin with"),
        (HEADER, "links.csv has no rows; give at least one for each device"),
        (HEADER + "0,0,1\n0,1\n", "links.csv line 3 has 2 cells; give time_s, device and snr_db"),
        (HEADER + "0,0,ten\n", "links.csv line 2: snr_db is 'ten'; give a number from -1000 to 1000"),
        (HEADER + "0,0,inf\n", "links.csv line 2: snr_db is 'inf'; give a number from -1000 to 1000"),
        (HEADER + "-1,0,3\n", "links.csv line 2: time_s is '-1'; give a number from 0 to 1e+12"),
        (HEADER + "1_0,0,3\n", "links.csv line 2: time_s is '1_0'; give a number"),
        (HEADER + "0,-1,3\n", "links.csv line 2: device is '-1'; give its number, from 0 to 999,999"),
        (HEADER + "0,1000000,3\n", "links.csv line 2: device is '1000000'; give its number"),
        (HEADER + "0,0,3\n5,0,3\n0.0,0,4\n", "links.csv line 4 gives device 0 at the time of line 2; keep one"),
        (HEADER + "0,0,3\n0,2,3\n", "links.csv has no row of device 1; the cell has 2 devices, 0 to 1: give each"),
        (HEADER + "0,0,3\n", "links.csv has no row of device 1; the cell has 2 devices"),
        (HEADER + '0,0,"3\n', "links.csv line 2 is not valid CSV (unexpected end of data); correct its quotes"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "links.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(sentence)):
        SnrTrace(str(path)).snr_db(2, 0.0)


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="No such file or directory; give a CSV file"):
        SnrTrace(str(tmp_path / "none.csv")).snr_db(1, 0.0)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InputError, match="not a regular file; give a CSV file"):
            SnrTrace(str(tmp_path / name)).snr_db(1, 0.0)
    with pytest.raises(InputError, match="null"):
        SnrTrace("a\0b").snr_db(1, 0.0)
    path = tmp_path / "links.csv"
    path.write_bytes(HEADER.encode() + b"0,0,3\n0,1,\xff\n")
    with pytest.raises(InputError, match=r"links.csv line 3 is not UTF-8 text; save it as UTF-8"):
        SnrTrace(str(path)).snr_db(1, 0.0)
    path.write_text(HEADER + "0,0,3\n")
    with pytest.raises(
        InputError, match=r"links.csv ends at time_s 0, so it cannot repeat; give later rows, or end=hold"
    ):
        SnrTrace(str(path), end="repeat").snr_db(1, 0.0)
    monkeypatch.setattr(snr_trace, "MAX_TRACE_BYTES", 2**20)
    path.write_text(HEADER + "0,0,3\n" * 2**18)
    with pytest.raises(InputError, match=r"links.csv is larger than 1 MiB; give fewer rows"):
        SnrTrace(str(path)).snr_db(1, 0.0)


def test_a_trace_may_be_as_large_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "links.csv"
    path.write_text(HEADER + "0,0,3\n")
    monkeypatch.setattr(snr_trace, "MAX_TRACE_BYTES", path.stat().st_size)
    assert SnrTrace(str(path)).snr_db(1, 0.0) == [3.0]
    monkeypatch.setattr(snr_trace, "MAX_TRACE_BYTES", path.stat().st_size - 1)
    os.utime(path, ns=(0, 0))  # as if it had changed since it was read
    with pytest.raises(InputError, match=r"links.csv is larger than 0 MiB"):
        SnrTrace(str(path)).snr_db(1, 0.0)


def test_a_trace_knows_no_places(tmp_path: Path) -> None:
    cell = Cell(channel=SnrTrace("links.csv"))
    sentence = r"the channel is the file links.csv, which knows no distances; give another"
    with pytest.raises(InputError, match=sentence):
        path_loss_db(cell, np.ones(1))
    with pytest.raises(InputError, match=sentence):
        loss_db(cell, np.ones((1, 2)), 0)
    with pytest.raises(InputError, match="the mean upload time is infinite with an MCS table or a trace"):
        mean_upload_s(cell)


def test_a_line_names_the_file_and_how_to_read_it() -> None:
    assert CHANNELS.parse("trace:links.csv") == SnrTrace("links.csv")
    assert CHANNELS.parse("trace:file=a=b.csv,between=linear,end=repeat") == SnrTrace("a=b.csv", "linear", "repeat")
    with pytest.raises(InputError, match=r"channel 'trace' needs file; write trace:file=..."):
        CHANNELS.parse("trace")


def test_a_run_is_known_by_the_files_content(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    for path in (one, other):
        write_trace(path, [0.0, 9.0], [[10.0, 11.0], [9.0, 8.0]])
    spec = fc.Spec(devices=fc.Devices(count=2), cell=fc.Cell(channel=SnrTrace(str(one))))
    key = spec.key()
    assert spec.changed({"cell.channel": f"trace:{other}"}).key() == key
    assert spec.changed({"cell.channel": f"trace:file={other},between=step"}).key() == key
    assert spec.changed({"cell.channel": f"trace:{other},end=repeat"}).key() != key
    write_trace(other, [0.0, 9.0], [[10.0, 11.0], [9.0, 8.5]])
    assert spec.changed({"cell.channel": f"trace:{other}"}).key() != key
    three = spec.changed({"devices.count": 3})  # a spec is no reason to read a file; a run is
    with pytest.raises(InputError, match=r"one.csv has no row of device 2; the cell has 3 devices, 0 to 2"):
        three.key()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    write_trace(path, [0.0], [[10.0]])
    channel = SnrTrace(str(path))
    assert channel.snr_db(1, 0.0).tolist() == [10.0]
    write_trace(path, [0.0], [[12.25]])
    assert channel.snr_db(1, 0.0).tolist() == [12.25]


def test_a_file_is_no_law_of_places_and_its_numbers_have_limits(tmp_path: Path) -> None:
    assert not SnrTrace.by_place
    path = tmp_path / "links.csv"
    for row, good in (
        ("1e12,0,3", True), ("1.1e12,0,3", False), ("0,999999,3", True), ("0,1000000,3", False),
        ("0,0,1000", True), ("0,0,1001", False), ("0,0,-1000", True), ("0,0,-1001", False),
    ):  # fmt: skip
        path.write_text(HEADER + row + "\n")
        with nullcontext() if good else pytest.raises(InputError, match=r"links.csv line 2"):
            rows(str(path))


def rows(path: str) -> Any:
    stat = os.stat(path)
    return snr_trace._read.__wrapped__(path, path, stat.st_mtime_ns, stat.st_size)
