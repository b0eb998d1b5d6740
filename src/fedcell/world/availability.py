"""Device availability: which devices can be asked to train, until when, and how fast they are then.

Each availability model is a pure function of seed and clock, as mobility is, so policies with one seed meet the same
devices and a run can resume at any round.
"""

import csv
import hashlib
import io
import math
import os
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell import settings
from fedcell.errors import InputError, did_you_mean, require_number, short_repr
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world.cell import BoolArray
from fedcell.world.device import IntArray

PAUSE_S = 60.0
"""After so many seconds a server looks again that can reach nobody, though some devices are there."""


@dataclass(frozen=True, eq=False)
class AvailabilitySnapshot:
    """Who of M devices is there at one moment.

    Attributes:
        there: (M,) booleans.
        until_s: (M,) the clock at which a device that is there leaves, in seconds; infinity if never.
        speed: (M,) how many times as fast as usual a device computes; None if all compute as usual.
    """

    there: BoolArray
    until_s: Floats
    speed: Floats | None = None


class Availability(Protocol):
    """Device availability over time: a pure function of seed and clock."""

    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        """Return who of ``count`` devices is there at this clock; None if all are and stay."""

    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        """Return the first clock from now on, in seconds, at which any device is there; infinity if never."""


@dataclass(frozen=True)
class Always(Availability):
    """Every device is always there, as in the paper.

    Example:
        >>> import fedcell as fc
        >>> fc.Always().at(count=3, seed=0, clock_s=0.0) is None
        True
    """

    @override
    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        return None

    @override
    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        return clock_s


@dataclass(frozen=True)
class DayNight(Availability):
    """Every device is there once a day: at its own time of the day, a little earlier or later each day.

    Device i's n-th day is the time from (n + spread u_i) day_s to (n + 1 + spread u_i) day_s, u_i uniform in [0, 1).
    Of a day it is there from x_n to y_n, which lie around the day's middle:

        x_n = (1 - there) day_s / 2 + noise a (v_n - 1/2)
        y_n = (1 + there) day_s / 2 + noise a (w_n - 1/2),    a = min(there, 1 - there) day_s,

    v_n and w_n uniform in [0, 1), independent for each device and day. So a device is there for the part ``there`` of
    the time on average, and always in one piece a day.

    Attributes:
        there: the part of the time for which a device is there, above 0 and at most 1.
        day_s: length of a day in seconds, at least 1.
        spread: how far the devices' days are apart: 0 if they all begin together, 1 if any time of the day is as
            likely (devices all around the world).
        noise: how much a device's times vary from day to day, from 0 to 1.

    Example:
        >>> import fedcell as fc
        >>> nights = fc.DayNight(there=0.25, day_s=1000.0)
        >>> [int(nights.at(count=1000, seed=0, clock_s=clock_s).there.sum()) for clock_s in (0.0, 500.0)]
        [235, 253]
        >>> together = fc.DayNight(there=0.25, day_s=1000.0, spread=0.0)
        >>> [int(together.at(count=1000, seed=0, clock_s=clock_s).there.sum()) for clock_s in (0.0, 400.0, 500.0)]
        [0, 711, 1000]
    """

    there: float = 0.5
    day_s: float = 86_400.0
    spread: float = 1.0
    noise: float = 0.5

    def __post_init__(self) -> None:
        require_number("there", self.there, above=0)
        require_number("day_s", self.day_s, least=1)
        for name in ("spread", "noise"):
            require_number(name, getattr(self, name), least=0)
        for name in ("there", "spread", "noise"):
            if getattr(self, name) > 1:
                raise InputError(f"{name} is {getattr(self, name):g}; give a number up to 1")

    @override
    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        """Return who is there: those for whom this is between x_n and y_n of their day."""
        if self.there == 1.0:
            return None
        day, phase = self._day(count, seed, clock_s)
        begin_s, end_s = self._stay(count, seed, day, phase)
        return AvailabilitySnapshot((begin_s <= clock_s) & (clock_s < end_s), end_s)

    @override
    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        """Return when the first of them comes: each does today or tomorrow."""
        day, phase = self._day(count, seed, clock_s)
        begin_s, end_s = self._stay(count, seed, day, phase)
        tomorrow_s, _ = self._stay(count, seed, day + 1, phase)
        return float(np.where(clock_s < end_s, np.maximum(begin_s, clock_s), tomorrow_s).min())

    def _day(self, count: int, seed: int, clock_s: float) -> tuple[NDArray[np.int64], Floats]:
        """(M,) each device's day n, and its phase spread u_i; the first may be day -1."""
        phase = self.spread * stream(seed, "daynight").random(count)
        day = np.floor(clock_s / self.day_s - phase).astype(np.int64)
        # The quotient is rounded: what counts is on which side of the day's first moment the clock is.
        day += (day + 1 + phase) * self.day_s <= clock_s
        day -= (day + phase) * self.day_s > clock_s
        return day, phase

    def _stay(self, count: int, seed: int, day: NDArray[np.int64], phase: Floats) -> tuple[Floats, Floats]:
        """(M,) the clocks at which each device comes and leaves on its day."""
        first = int(day.min())  # with its phase below 1, a device is on this day or the next
        draws = [stream(seed, "daynight", n + 1).random((count, 2)) for n in (first, first + 1)]
        shift = np.where((day == first)[:, np.newaxis], *draws) - 0.5
        swing = self.noise * min(self.there, 1 - self.there)
        base_s = (day + phase) * self.day_s
        begin_s = base_s + ((1 - self.there) / 2 + swing * shift[:, 0]) * self.day_s
        return begin_s, base_s + ((1 + self.there) / 2 + swing * shift[:, 1]) * self.day_s


AVAILABILITIES: "settings.Registry[Always | DayNight | Trace]" = settings.Registry(
    "availability",
    {
        "always": "fedcell.world.availability:Always",
        "daynight": "fedcell.world.availability:DayNight",
        "trace": "fedcell.world.availability:Trace",
    },
    positional=settings.file_first,
)
"""Availability models by name."""


MAX_BYTES = 512 * 2**20
MAX_INTERVALS = 5_000_000
LATEST_S = 1e12
"""Times beyond this, 30,000 years, are mistakes."""
MAX_SPEED = 1e6
COLUMNS = ("device", "from_s", "until_s", "speed")


@dataclass(frozen=True, eq=False)
class AvailabilityIntervals:
    """The intervals of M devices; those of device i are number first[i] to first[i + 1] - 1.

    Attributes:
        first: (M + 1,) where each device's intervals begin.
        begin_s: (K,) when an interval begins, in seconds; ascending for each device.
        end_s: (K,) when it ends: at the next one's begin at the latest.
        speed: (K,) how many times as fast as usual the device computes in it; None if always as usual.
        period_s: after how many seconds they begin again; infinity for never.
    """

    first: IntArray
    begin_s: Floats
    end_s: Floats
    speed: Floats | None
    period_s: float

    def at(self, clock_s: float) -> tuple[BoolArray, Floats, Floats | None]:
        """(M,) who is there, until when, and how fast; see AvailabilitySnapshot."""
        base_s = self._base_s(self._period_index(clock_s))
        last = self._last_begun(base_s, clock_s)
        begun = last >= self.first[:-1]
        there = begun & (clock_s < base_s + self.end_s[last])
        until_s = np.where(there, base_s + self._departure_s[last], np.inf)
        return there, until_s, None if self.speed is None else np.where(there, self.speed[last], 1.0)

    def next_s(self, clock_s: float) -> float:
        """The first clock from now on at which anybody is there; infinity if never."""
        if self.at(clock_s)[0].any():
            return clock_s
        period = self._period_index(clock_s)
        following = self._last_begun(self._base_s(period), clock_s) + 1
        over = following == self.first[1:]  # for this period; the first interval comes again in the next
        some = self.first[1:] > self.first[:-1]
        begin_s = self.begin_s[np.where(some, np.where(over, self.first[:-1], following), 0)]
        base_s = np.where(over, self._base_s(period + 1), self._base_s(period))
        return float(np.where(some, base_s + begin_s, np.inf).min())

    def _period_index(self, clock_s: float) -> float:
        """How often the trace has begun again by now."""
        if math.isinf(self.period_s):
            return 0.0
        period = float(clock_s // self.period_s)
        # The quotient is rounded: what counts is on which side of a period's first moment the clock is.
        period += (period + 1) * self.period_s <= clock_s
        return period - (period * self.period_s > clock_s)

    def _base_s(self, period: float) -> float:
        """The clock at which this period begins."""
        return 0.0 if period == 0 else period * self.period_s

    def _last_begun(self, base_s: float, clock_s: float) -> IntArray:
        """(M,) the last interval of each device that has begun in this period; first[i] - 1 if none has."""
        low, high = self.first[:-1] - 1, self.first[1:] - 1
        while (several := low < high).any():
            middle = (low + high + 1) // 2
            begun = base_s + self.begin_s[middle] <= clock_s
            low, high = np.where(several & begun, middle, low), np.where(several & ~begun, middle - 1, high)
        return low

    @cached_property
    def _departure_s(self) -> Floats:
        """(K,) when the stay that an interval belongs to ends: intervals that touch are one stay."""
        owner = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        joined = (owner[1:] == owner[:-1]) & (self.end_s[:-1] == self.begin_s[1:])
        ends = np.flatnonzero(np.append(~joined, True))
        leave_s = self.end_s[ends[np.searchsorted(ends, np.arange(owner.size))]]
        # The stay at the end of a period goes on in the next one, if that begins with a stay.
        first = self.first[owner]
        goes_on = (leave_s == self.period_s) & (self.begin_s[first] == 0)
        again_s = np.where(leave_s[first] == self.period_s, np.inf, self.period_s + leave_s[first])
        return np.where(goes_on, again_s, leave_s)


@dataclass(frozen=True)
class Trace(Availability):
    r"""Device availability from a CSV file with the columns device, from_s, until_s and, if wanted, speed.

    A device is there from an interval's begin to before its end, and for good where one interval ends as the next
    begins. A device that the file does not name is never there.

    Attributes:
        file: a CSV file.
        repeat: whether a trace begins again when it is over. If not, nobody is there from then on.
        period_s: after how many seconds it begins again; by default when the file's last interval has ended.

    Example:
        >>> import fedcell as fc
        >>> from pathlib import Path
        >>> _ = Path("who.csv").write_text("device,from_s,until_s,speed\n0,0,100,1\n1,50,200,0.5\n")
        >>> trace = fc.Trace("who.csv")
        >>> for clock_s in (0.0, 60.0, 260.0):
        ...     now = trace.at(count=2, seed=0, clock_s=clock_s)
        ...     print(now.there.tolist(), now.until_s.tolist(), now.speed.tolist())
        [True, False] [100.0, inf] [1.0, 1.0]
        [True, True] [100.0, 200.0] [1.0, 0.5]
        [True, True] [300.0, 400.0] [1.0, 0.5]
    """

    file: str
    repeat: bool = True
    period_s: float | None = None

    def __post_init__(self) -> None:
        if self.period_s is not None:
            require_number("period_s", self.period_s, above=0)
            if not self.repeat:
                raise InputError(f"period_s is {self.period_s:g}, but repeat is false; leave one out")

    @override
    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot:
        """Return who is there: those with an interval around this clock."""
        return AvailabilitySnapshot(*self._intervals(count).at(clock_s))

    @override
    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        """Return when the next interval of any device begins, or now if somebody is there."""
        return self._intervals(count).next_s(clock_s)

    @cached_property
    def _read(self) -> dict[int, AvailabilityIntervals]:
        """By the number of devices; a run goes on with the file as it was when it began."""
        return {}

    def _intervals(self, count: int) -> AvailabilityIntervals:
        if count not in self._read:
            self._read[count] = read_intervals(self.file, count, repeat=self.repeat, period_s=self.period_s)
        return self._read[count]

    def content_sha256(self, count: int) -> str:
        """Return the SHA-256 of the file's content, in hex; an InputError if ``count`` devices cannot use it."""
        self._intervals(count)
        return file_sha256(self.file)


def read_intervals(
    path: str, count: int, *, repeat: bool = True, period_s: float | None = None
) -> AvailabilityIntervals:
    """Read a trace for ``count`` devices.

    Args:
        path: a CSV file.
        count: M; the file names devices 0 to M - 1.
        repeat: whether a trace begins again when it is over.
        period_s: after how many seconds, instead of when it is over.

    Returns:
        AvailabilityIntervals: of the M devices.
    """
    file, stat = _found(path)
    return _read(file, path, (stat.st_mtime_ns, stat.st_size), count, repeat, period_s)


@lru_cache(maxsize=4)
def _read(
    file: str,
    path: str,
    version: tuple[int, int],  # noqa: ARG001  (a changed file is read again)
    count: int,
    repeat: bool,
    period_s: float | None,
) -> AvailabilityIntervals:
    intervals = _parse(file, path, count)
    if not repeat:
        return replace(intervals, period_s=math.inf)
    if period_s is None:
        return intervals
    if (latest_s := float(intervals.end_s.max())) > period_s:
        raise InputError(
            f"period_s is {period_s:g}, but {path} has an interval until {latest_s:g} s; give at least that"
        )
    return replace(intervals, period_s=period_s)


def file_sha256(path: str) -> str:
    """Return the SHA-256 of the file's content, in hex."""
    file, stat = _found(path)
    return _sha256(file, stat.st_mtime_ns, stat.st_size)


def _found(path: str) -> tuple[str, os.stat_result]:
    try:
        file = os.path.realpath(os.path.expanduser(path))
        stat = os.stat(file)
        if not os.path.isfile(file):
            raise OSError(0, "not a regular file")  # a pipe would never end
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the trace {path[:200]!r}: {reason}; give a CSV file") from None
    if stat.st_size > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB; keep fewer devices or days")
    return file, stat


@lru_cache(maxsize=64)
def _sha256(file: str, mtime_ns: int, size: int) -> str:  # noqa: ARG001  (a changed file is read again)
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _parse(file: str, path: str, count: int) -> AvailabilityIntervals:
    with open(file, "rb") as stream:
        content = stream.read(MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
        bad = content.find(0)  # UTF-16 without its mark is UTF-8 full of zeros
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text (byte 0x{content[bad]:02x}); save it as UTF-8")
    if text.lstrip().startswith(("{", "[")):
        raise InputError(f"{path} is JSON; write its intervals as CSV, with the columns {', '.join(COLUMNS[:3])}")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    device, begin_s, end_s, speed, lines = list[int](), list[float](), list[float](), list[float](), list[int]()
    try:
        header = [name.strip() for name in next((row for row in reader if "".join(row).strip()), [])]
        places = _places(header, path)
        for row in reader:
            if not "".join(row).strip():
                continue
            where = f"{path} line {reader.line_num}"
            if len(row) != len(header):
                raise InputError(f"{where} has {len(row)} cells but the header has {len(header)}; give one a column")
            cells = {name: row[place].strip() for name, place in places.items()}
            device.append(_device(cells["device"], count, where))
            begin_s.append(_number(cells["from_s"], "from_s", where, 0.0, LATEST_S))
            end_s.append(_number(cells["until_s"], "until_s", where, 0.0, LATEST_S))
            speed.append(_number(cells.get("speed") or "1", "speed", where, 1 / MAX_SPEED, MAX_SPEED))
            lines.append(reader.line_num)
            if end_s[-1] <= begin_s[-1]:
                raise InputError(f"{where}: until_s is {cells['until_s']}, not after from_s, {cells['from_s']}")
            if len(lines) > MAX_INTERVALS:
                raise InputError(f"{path} has more than {MAX_INTERVALS:,} intervals; keep fewer devices or days")
    except csv.Error as error:
        raise InputError(f"{path} line {reader.line_num} is not valid CSV ({error}); correct its quotes") from None
    if not lines:
        raise InputError(f"{path} has no intervals; give a line such as 0,0,3600 below {','.join(COLUMNS[:3])}")
    order = np.lexsort((begin_s, device))
    who, begin, end = np.array(device)[order], np.array(begin_s)[order], np.array(end_s)[order]
    overlaps = np.flatnonzero((who[1:] == who[:-1]) & (begin[1:] < end[:-1]))
    if overlaps.size:
        one, other = sorted(lines[place] for place in order[overlaps[0] : overlaps[0] + 2])
        raise InputError(
            f"{path} line {other}: it overlaps line {one} of device {who[overlaps[0]]}; "
            "let one interval of a device end before the next begins"
        )
    factor = np.array(speed)[order]
    return AvailabilityIntervals(
        np.searchsorted(who, np.arange(count + 1)),
        begin,
        end,
        None if (factor == 1.0).all() else factor,
        float(end.max()),
    )


def _places(header: list[str], path: str) -> dict[str, int]:
    if not header:
        raise InputError(f"{path} is empty; give the columns {', '.join(COLUMNS[:3])} and, if wanted, speed")
    for name in header:
        if name not in COLUMNS:
            raise InputError(f"{path} has a column {short_repr(name)}; {did_you_mean(name, COLUMNS)}")
        if header.count(name) > 1:
            raise InputError(f"{path} has the column {name} twice; keep one")
    for name in COLUMNS[:3]:
        if name not in header:
            raise InputError(f"{path} has no column {name}; its first line names {', '.join(COLUMNS[:3])}")
    return {name: header.index(name) for name in header}


def _device(text: str, count: int, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) < count):
        raise InputError(f"{where}: device is {short_repr(text)}; the cell's devices are 0 to {count - 1}")
    return int(text)


def _number(value: str, name: str, where: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise InputError(f"{where}: {name} is {short_repr(value)}; give a number from {least:g} to {most:g}")
    return number
