from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcell as fc
from fedcell.world import AVAILABILITIES, availability
from fedcell.world.availability import AvailabilityIntervals, read_intervals

HEADER = "device,from_s,until_s\n"


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


# --- day and night ---------------------------------------------------------------------------------------------------


@given(
    st.floats(0.05, 0.95),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
    st.floats(0.0, 5.0),
)
def test_a_day_has_one_stay_which_until_and_next_agree_with(
    there: float, spread: float, noise: float, seed: int, days: float
) -> None:
    model, count, clock_s = fc.DayNight(there, 1000.0, spread, noise), 7, 1000.0 * days
    now = model.at(count, seed, clock_s)
    assert now is not None
    for i in np.flatnonzero(now.there):
        for part in (0.0, 0.3, 0.999):
            later = model.at(count, seed, clock_s + part * (now.until_s[i] - clock_s))
            assert later is not None
            assert later.there[i]
        gone = model.at(count, seed, float(now.until_s[i]))
        assert gone is not None
        assert not gone.there[i] or there > 0.9  # a new day may begin at once
    next_s = model.next_s(count, seed, clock_s)
    then = model.at(count, seed, next_s)
    assert then is not None
    assert then.there.any()
    assert (next_s == clock_s) == now.there.any()
    for part in (0.1, 0.5, 0.99):
        between = model.at(count, seed, clock_s + part * (next_s - clock_s))
        assert between is not None
        assert next_s == clock_s or not between.there.any()


def test_day_and_night_as_a_slow_twin_has_it() -> None:
    model, seed, count = fc.DayNight(0.3, 100.0, 0.5, 0.8), 3, 11
    from fedcell.rng import stream

    phase = 0.5 * stream(seed, "daynight").random(count)
    for clock_s in np.linspace(0.0, 700.0, 141):
        found = model.at(count, seed, float(clock_s))
        assert found is not None
        for i in range(count):
            inside = False
            for day in range(-1, 8):
                v, w = stream(seed, "daynight", day + 1).random((count, 2))[i]
                begin_s = 100.0 * (day + phase[i]) + 35.0 + 0.8 * 30.0 * (v - 0.5)
                end_s = 100.0 * (day + phase[i]) + 65.0 + 0.8 * 30.0 * (w - 0.5)
                inside |= begin_s <= clock_s < end_s
            assert found.there[i] == inside, (i, clock_s)


def test_devices_are_there_for_their_part_of_the_time_and_do_not_depend_on_how_many_follow() -> None:
    model = fc.DayNight(there=0.3, day_s=100.0, noise=1.0)
    looks = [model.at(400, 0, 3.7 * k) for k in range(100)]
    assert np.mean([look.there for look in looks if look is not None]) == pytest.approx(0.3, abs=0.02)
    few, many = model.at(5, 0, 42.0), model.at(50, 0, 42.0)
    assert few is not None
    assert many is not None
    assert few.there.tolist() == many.there[:5].tolist()
    assert fc.DayNight(there=1.0).at(3, 0, 0.0) is None


# --- traces ----------------------------------------------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    found = []
    for device in range(3):
        times = draw(st.lists(st.integers(0, 30), max_size=8, unique=True))
        times.sort()
        found += [(device, a, b) for a, b in zip(times[::2], times[1::2], strict=False)]
        if len(times) > 2 and draw(st.booleans()):  # one that touches the first
            found.append((device, times[1], times[2]))
    return found


@settings(max_examples=40)
@given(rows(), st.booleans(), st.sampled_from([None, 30.0, 37.5]))
def test_a_trace_says_what_its_rows_say(rows: list[tuple[int, int, int]], repeat: bool, period_s: float | None) -> None:
    import tempfile

    if not rows or (period_s is not None and not repeat):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "t.csv", HEADER + "".join(f"{d},{a},{b}\n" for d, a, b in reversed(rows)))
        stays = read_intervals(path, 4, repeat=repeat, period_s=period_s)
    period = max(b for _, _, b in rows) if period_s is None else period_s

    def there(device: int, clock_s: float) -> bool:
        at = clock_s % period if repeat else clock_s
        return any(d == device and a <= at < b for d, a, b in rows)

    steps = np.arange(0.0, 4 * period, 0.5)
    for clock_s in steps[steps < 2.5 * period]:
        found, until_s, speed = stays.at(float(clock_s))
        assert speed is None
        assert found.tolist() == [there(device, clock_s) for device in range(4)]
        for device in np.flatnonzero(found):
            gone = [s for s in steps if s >= clock_s and not there(int(device), s)]
            if gone:
                assert until_s[device] == gone[0]
            else:
                assert until_s[device] > steps[-1] - period
        come = [s for s in steps if s >= clock_s and any(there(device, s) for device in range(4))]
        assert stays.next_s(float(clock_s)) == (come[0] if come else np.inf)


def test_who_comes_at_the_next_clock_is_there_at_it_whatever_the_rounding() -> None:
    stays = AvailabilityIntervals(np.array([0, 1, 2]), np.array([0.0, 0.3]), np.array([0.1, 0.4]), None, 0.7)
    clock_s = 0.0
    for _ in range(10_000):
        found, until_s, _ = stays.at(clock_s)
        if found.any():
            assert until_s[found].min() > clock_s
            clock_s = float(until_s[found].min())
        else:
            clock_s = stays.next_s(clock_s)
            assert stays.at(clock_s)[0].any()
    assert clock_s == pytest.approx(0.7 * 2500, rel=1e-9)


def test_a_speed_divides_the_time_of_training(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "device,from_s,until_s,speed\n0,0,50,2\n0,50,90,0.5\n1,0,90,\n")
    world = fc.World(devices=fc.Devices(count=2), availability=fc.Trace(path))
    usual = fc.World(devices=fc.Devices(count=2))
    for clock_s, speed in ((0.0, 2.0), (60.0, 0.5), (95.0, 2.0)):
        ours, theirs = (one.conditions(0, 3, clock_s) for one in (world, usual))
        np.testing.assert_allclose(ours.compute_s, theirs.compute_s / [speed, 1.0])
        np.testing.assert_allclose(ours.expected_compute_s, theirs.expected_compute_s / [speed, 1.0])
    assert ours.until_s is not None
    assert ours.until_s.tolist() == [np.inf, np.inf]  # always there, in one piece


def test_a_trace_that_changes_is_read_again_but_not_by_a_run_that_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", HEADER + "0,0,5\n")
    begun = fc.Trace(path)
    assert begun.at(1, 0, 0.0).until_s.tolist() == [np.inf]  # it repeats without a gap
    write(tmp_path / "t.csv", HEADER + "0,5,10\n")
    assert begun.at(1, 0, 0.0).there.tolist() == [True]
    assert fc.Trace(path).at(1, 0, 0.0).there.tolist() == [False]
    assert begun == fc.Trace(path)


MISTAKES: list[tuple[str | bytes, str]] = [
    ("", "is empty; give the columns device, from_s, until_s"),
    (HEADER, "has no intervals; give a line such as 0,0,3600 below device,from_s,until_s"),
    (HEADER + "0,5\n", "line 2 has 2 cells but the header has 3"),
    (HEADER + "\n0,5,5\n", "line 3: until_s is 5, not after from_s, 5"),
    (HEADER + "0,9,5\n", "line 2: until_s is 5, not after from_s, 9"),
    (HEADER + "0,-1,5\n", "line 2: from_s is '-1'; give a number from 0 to 1e"),
    (HEADER + "0,x,5\n", "line 2: from_s is 'x'; give a number"),
    (HEADER + "0,nan,5\n", "line 2: from_s is 'nan'; give a number"),
    (HEADER + "0,0,1\n3,0,5\n", "line 3: device is '3'; the cell's devices are 0 to 2"),
    (HEADER + "phone,0,5\n", "line 2: device is 'phone'; the cell's devices are 0 to 2"),
    (HEADER + "0,10,20\n1,0,9\n0,0,11\n", "line 4: it overlaps line 2 of device 0"),
    ("device,from_s,until_s,speed\n0,0,5,0\n", "line 2: speed is '0'; give a number from 1e-06"),
    ("device,from_s,until\n0,0,5\n", "has a column 'until'; did you mean 'until_s'"),
    ("device,from_s\n0,0\n", "has no column until_s; its first line names device, from_s, until_s"),
    ("device,device,from_s,until_s\n", "has the column device twice; keep one"),
    (HEADER + '0,"0,5\n', r"line \d is not valid CSV"),
    (HEADER.encode() + b"0,\xff,5\n", r"line 2 is not UTF-8 text \(byte 0xff\)"),
    (b"\x80\x04}q\x00.", r"line 1 is not UTF-8 text \(byte 0x80\)"),
    (
        '{"u": {"active": [1], "inactive": [2]}}',
        "is JSON; write its intervals as CSV, with the columns device, from_s,",
    ),
]


@pytest.mark.parametrize(("content", "words"), MISTAKES)
def test_a_mistake_in_a_trace_is_one_sentence(content: str | bytes, words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "who.txt", content)
    with pytest.raises(fc.InputError, match=words) as caught:
        fc.Trace(path).at(3, 0, 0.0)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_mistakes_in_the_setting_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "who.csv", HEADER + "0,0,5\n")
    mistakes = [
        ("sometimes", "unknown availability 'sometimes'; choose from always, daynight, trace"),
        ("daynight:there=0", "there is 0.0; give a finite number above 0"),
        ("daynight:there=2", "there is 2; give a number up to 1"),
        ("daynight:noise=-1", "noise is -1.0; give a finite number of at least 0"),
        ("daynight:day=5", "has no setting 'day'; did you mean 'day_s'"),
        ("trace", "availability 'trace' needs file"),
        (f"trace:{path},repeat=false,period_s=9", "period_s is 9, but repeat is false; leave one out"),
    ]
    for text, words in mistakes:
        with pytest.raises(fc.InputError, match=words):
            AVAILABILITIES.parse(text)
        with pytest.raises(fc.InputError, match=r"devices\.availability"):
            fc.Spec(devices={"availability": text})  # type: ignore[arg-type]
    for text, words in [
        (f"trace:{path},period_s=4", "period_s is 4, but .* has an interval until 5 s"),
        (f"trace:{tmp_path}", "cannot read the trace .*: not a regular file"),
        ("trace:nowhere.csv", "cannot read the trace 'nowhere.csv': No such file or directory"),
    ]:
        with pytest.raises(fc.InputError, match=words):
            fc.Spec(devices={"availability": text}).key()  # type: ignore[arg-type]
    monkeypatch.setattr("fedcell.world.availability.MAX_INTERVALS", 1)
    with pytest.raises(fc.InputError, match="has more than 1 intervals"):
        fc.Trace(write(tmp_path / "long.csv", HEADER + "0,0,5\n0,6,7\n")).at(1, 0, 0.0)
    monkeypatch.setattr("fedcell.world.availability.MAX_BYTES", 10)
    with pytest.raises(fc.InputError, match="is larger than 0 MiB"):
        fc.Trace(path).at(1, 0, 0.0)


def test_numbers_that_users_meet() -> None:
    assert (availability.PAUSE_S, availability.MAX_SPEED, availability.LATEST_S) == (60.0, 1e6, 1e12)
    assert (availability.MAX_BYTES, availability.MAX_INTERVALS) == (512 * 2**20, 5_000_000)
    assert vars(fc.DayNight()) == {"there": 0.5, "day_s": 86_400.0, "spread": 1.0, "noise": 0.5}
    assert fc.Trace("there.csv").repeat
