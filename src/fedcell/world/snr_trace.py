"""Channels from a file: the SNR of every device over time, as measured or as another simulator computed it.

A CSV file with the columns ``time_s``, ``device`` (from 0) and ``snr_db``, a row for each change, in any order::

    time_s,device,snr_db
    0,0,12.5
    0,1,3
    60,1,

An empty ``snr_db`` means that the device has no link from then on. Before its first row a device has that row's SNR.
Nothing read here is trusted: the size is limited, every value is checked, each mistake is one sentence with the line.
"""

import csv
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan, nan
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError, did_you_mean
from fedcell.files import write_output
from fedcell.world.cell import Channel

MAX_TRACE_BYTES = 64 * 2**20
MAX_TRACE_DEVICE = 999_999
_COLUMNS = ("time_s", "device", "snr_db")
_MAX_TIME_S = 1e12
_MAX_SNR_DB = 1000.0


@dataclass(frozen=True)
class SnrTrace(Channel):
    """The SNR of every device over time, from a file; distance, power and noise have no effect.

    Attributes:
        file: the CSV file; see the module. It may have more devices than the cell.
        between: ``step``: a row holds until the device's next; ``linear``: the SNR in dB goes straight to the next;
            beside an empty one there is no link.
        end: ``hold``: a device's last row holds for ever; ``repeat``: at the file's last time it begins again at 0, so
            that a step of that time is never seen.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.world.snr_trace import write_trace
        >>> write_trace("links.csv", time_s=[0.0, 60.0], snr_db=[[12.5, 3.0], [10.5, 9.0]])
        >>> fc.SnrTrace("links.csv").snr_db(2, 30.0).tolist()
        [12.5, 3.0]
        >>> fc.SnrTrace("links.csv", between="linear", end="repeat").snr_db(2, 90.0).tolist()
        [11.5, 6.0]
    """

    by_place: ClassVar[bool] = False

    file: str
    between: Literal["step", "linear"] = "step"
    end: Literal["hold", "repeat"] = "hold"

    def snr_db(self, count: int, clock_s: float) -> NDArray[np.float64]:
        """Look the SNR up.

        Args:
            count: M, the number of devices.
            clock_s: seconds from the start of the run.

        Returns:
            (M,) dB, NaN for a device without a link; an InputError if the file is wrong or lacks a device.
        """
        rows = self.load(count)
        t = clock_s % rows.last_s if self.end == "repeat" else clock_s
        # Row numbers rise with device and time, so one search finds the last row of every device up to t.
        device = np.arange(count)
        wanted = device * len(rows.moments_s) + np.searchsorted(rows.moments_s, t, side="right") - 1
        first, after = rows.first[:count], rows.first[1 : count + 1]
        last = np.maximum(np.searchsorted(rows.order, wanted, side="right") - 1, first)
        now: NDArray[np.float64] = rows.snr_db[last]
        if self.between == "step":
            return now
        following = np.minimum(last + 1, after - 1)
        span_s = rows.time_s[following] - rows.time_s[last]
        done = np.divide(t - rows.time_s[last], span_s, out=np.zeros(count), where=span_s > 0)
        return np.where(done > 0, (1 - done) * now + done * rows.snr_db[following], now)

    def load(self, count: int) -> "_Rows":
        """Read the file, or what was read of it unless it has changed.

        Args:
            count: M; each of the devices 0 to M - 1 must be there.
        """
        rows = _load(self.file)
        missing = np.flatnonzero(np.diff(rows.first[: count + 1]) == 0)
        if missing.size or len(rows.first) <= count:
            absent = int(missing[0]) if missing.size else len(rows.first) - 1
            raise InputError(
                f"{self.file} has no row of device {absent}; the cell has {count} devices, 0 to {count - 1}: give each "
                "at least one row"
            )
        if self.end == "repeat" and rows.last_s == 0:
            raise InputError(f"{self.file} ends at time_s 0, so it cannot repeat; give later rows, or end=hold")
        return rows

    def sha256(self, count: int) -> str:
        """The SHA-256 of the file's content, in hex, after it was checked for so many devices."""
        return self.load(count).sha256


def write_trace(path: str | Path, time_s: ArrayLike, snr_db: ArrayLike) -> None:
    """Write a file that `SnrTrace` reads.

    Args:
        path: of the CSV file.
        time_s: (T,) times in seconds, none twice.
        snr_db: (T, M) the SNR of every device at these times, in dB; NaN where there is no link.
    """
    times, values = np.asarray(time_s, np.float64), np.asarray(snr_db, np.float64)
    if times.ndim != 1 or values.ndim != 2 or len(times) != len(values):
        raise InputError(f"time_s has shape {times.shape} and snr_db {values.shape}; give (T,) and (T, M)")

    def write(file: IO[bytes]) -> None:
        file.write(b"time_s,device,snr_db\n")
        for t, row in zip(times.tolist(), values.tolist(), strict=True):
            lines = (f"{t!r},{device},{'' if isnan(value) else repr(value)}\n" for device, value in enumerate(row))
            file.write("".join(lines).encode())

    write_output(Path(path), write)


class _Rows(NamedTuple):
    """The rows of a file, sorted by device and time."""

    time_s: NDArray[np.float64]  # (N,)
    snr_db: NDArray[np.float64]  # (N,)
    first: NDArray[np.int64]  # (D + 1,) where each device's rows begin, and the end of the last
    moments_s: NDArray[np.float64]  # all times of the file, rising
    order: NDArray[np.int64]  # (N,) device x moments + the time's place among the moments: rising
    last_s: float
    sha256: str


def _load(name: str) -> _Rows:
    path = os.path.expanduser(name)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(0, "not a regular file")  # a pipe would never end
        stat = os.stat(path)
        return _read(os.path.realpath(path), name, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the channel's file {name[:200]!r}: {reason}; give a CSV file") from None


@lru_cache(maxsize=8)
def _read(path: str, name: str, mtime_ns: int, size: int) -> _Rows:  # noqa: ARG001  (a changed file is read again)
    with open(path, "rb") as file:
        content = file.read(MAX_TRACE_BYTES + 1)
    if len(content) > MAX_TRACE_BYTES:
        raise InputError(f"{name} is larger than {MAX_TRACE_BYTES >> 20} MiB; give fewer rows")
    bad = content.find(0)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise InputError(f"{name} line {line} is not UTF-8 text; save it as UTF-8")
    return _sorted(list(_parse(text, name)), name, hashlib.sha256(content).hexdigest())


def _parse(text: str, name: str) -> Iterator[tuple[int, float, float, int]]:
    """Device, time, SNR and line of every row."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for column in header:
            if column not in _COLUMNS:
                raise InputError(f"{name} has a column {column[:60]!r}; {did_you_mean(column, _COLUMNS)}")
        if len(header) != 3 or len(set(header)) != 3:
            raise InputError(f"{name} line 1 is {','.join(header)[:60]!r}; begin with time_s,device,snr_db")
        places = [header.index(column) for column in _COLUMNS]
        for row in reader:
            if not "".join(row).strip():
                continue
            if len(row) != 3:
                raise InputError(f"{name} line {reader.line_num} has {len(row)} cells; give time_s, device and snr_db")
            time_s, device, snr_db = (row[place].strip() for place in places)
            where = f"{name} line {reader.line_num}"
            yield (
                _device(device, where),
                _number("time_s", time_s, where, 0.0, _MAX_TIME_S),
                _number("snr_db", snr_db, where, -_MAX_SNR_DB, _MAX_SNR_DB) if snr_db else nan,
                reader.line_num,
            )
    except csv.Error as error:
        raise InputError(f"{name} line {reader.line_num} is not valid CSV ({error}); correct its quotes") from None


def _device(cell: str, where: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 10 and int(cell) <= MAX_TRACE_DEVICE):
        raise InputError(f"{where}: device is {cell[:60]!r}; give its number, from 0 to {MAX_TRACE_DEVICE:,}")
    return int(cell)


def _number(column: str, cell: str, where: str, least: float, most: float) -> float:
    try:
        value = nan if "_" in cell else float(cell)
    except ValueError:
        value = nan
    if not (isfinite(value) and least <= value <= most):
        raise InputError(f"{where}: {column} is {cell[:60]!r}; give a number from {least:g} to {most:g}")
    return value


def _sorted(found: list[tuple[int, float, float, int]], name: str, sha256: str) -> _Rows:
    if not found:
        raise InputError(f"{name} has no rows; give at least one for each device")
    columns: list[Any] = [np.array(column) for column in zip(*found, strict=True)]
    device, time_s, snr_db, line = (column[np.lexsort((columns[1], columns[0]))] for column in columns)
    twice = np.flatnonzero((np.diff(device) == 0) & (np.diff(time_s) == 0))
    if twice.size:
        one, other = sorted(line[twice[0] : twice[0] + 2].tolist())
        raise InputError(f"{name} line {other} gives device {device[twice[0]]} at the time of line {one}; keep one")
    moments_s, place = np.unique(time_s, return_inverse=True)
    first = np.searchsorted(device, np.arange(device[-1] + 2))
    return _Rows(time_s, snr_db, first, moments_s, device * len(moments_s) + place, float(moments_s[-1]), sha256)
