"""Traces of who was there: intervals as CSV, or the JSON traces of FLASH and FedScale.

    device,from_s,until_s,speed          CSV: a device is there from from_s to before until_s; speed is optional
    {"guid": {"messages": ...}, ...}     FLASH, state_traces.json: a user's events, one "time TAB state" a line
    {"guid": {"ready_time": ...}, ...}   FLASH, cached_timers.json: when a user was ready
    {"id": {"active": ..., "inactive": ..., "finish_time": ...}, ...}   FedScale, client_behave_trace, written as JSON

Nothing read here is trusted: sizes are limited, nothing is unpickled, and each mistake gets one sentence with the file,
the line or the user, and the value.
"""

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np

from fedcell.errors import InputError, did_you_mean, short_repr
from fedcell.world.availability import AvailabilityIntervals

MAX_BYTES = 512 * 2**20
MAX_INTERVALS = 5_000_000
LATEST_S = 1e12
"""Times beyond this, 30,000 years, are mistakes."""
LARGEST_SPEED = 1e6
COLUMNS = ("device", "from_s", "until_s", "speed")
_FLASH_TIME = "%Y-%m-%d %H:%M:%S"
_FLASH_START = datetime(2020, 1, 2)
_FLASH_STATES = {
    "battery_charged_on": ("charged", True),
    "battery_charged_off": ("charged", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "screen_on": ("screen", True),
    "screen_off": ("screen", False),
}


def read_intervals(
    path: str, count: int, *, repeat: bool = True, period_s: float | None = None
) -> AvailabilityIntervals:
    """Read a trace for ``count`` devices.

    Args:
        path: a CSV or JSON file.
        count: M. A CSV file names devices 0 to M - 1; of a published trace, device i gets user i, in the file's order,
            and from the first again if it has fewer users.
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
        return replace(intervals, period_s=np.full(count, np.inf))
    if period_s is None:
        return intervals
    if (latest_s := float(intervals.end_s.max())) > period_s:
        raise InputError(
            f"period_s is {period_s:g}, but {path} has an interval until {latest_s:g} s; give at least that"
        )
    return replace(intervals, period_s=np.full(count, period_s))


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
        raise InputError(f"cannot read the trace {path[:200]!r}: {reason}; give a CSV or JSON file") from None
    if stat.st_size > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB; keep fewer devices or days")
    return file, stat


@lru_cache(maxsize=64)
def _sha256(file: str, mtime_ns: int, size: int) -> str:  # noqa: ARG001  (a changed file is read again)
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _parse(file: str, path: str, count: int) -> AvailabilityIntervals:
    with open(file, "rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if content[:1] == b"\x80" or path.endswith((".pkl", ".pickle")):
        raise InputError(
            f"{path} is a pickle, which can run any code when it is read; if you trust it, write it as JSON: "
            "python -c \"import json, pickle; json.dump(pickle.load(open('FILE', 'rb')), open('FILE.json', 'w'))\""
        )
    try:
        text = content.decode("utf-8-sig")
        bad = content.find(0)  # UTF-16 without its mark is UTF-8 full of zeros
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text (byte 0x{content[bad]:02x}); save it as UTF-8")
    start = text[:1000].lstrip()[:1]
    return _of_users(text, path, count) if start in ("{", "[") else _of_rows(text, path, count)


# --- CSV -------------------------------------------------------------------------------------------------------------


def _of_rows(text: str, path: str, count: int) -> AvailabilityIntervals:
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
            speed.append(_number(cells.get("speed") or "1", "speed", where, 1 / LARGEST_SPEED, LARGEST_SPEED))
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
    bad = np.flatnonzero((who[1:] == who[:-1]) & (begin[1:] < end[:-1]))
    if bad.size:
        first, second = lines[order[bad[0]]], lines[order[bad[0] + 1]]
        raise InputError(
            f"{path} line {max(first, second)}: it overlaps line {min(first, second)} of device {who[bad[0]]}; "
            "let one interval of a device end before the next begins"
        )
    factor = np.array(speed)[order]
    return AvailabilityIntervals(
        np.searchsorted(who, np.arange(count + 1)),
        begin,
        end,
        None if (factor == 1.0).all() else factor,
        np.zeros(count),
        np.full(count, end.max()),
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


def _number(value: Any, name: str, where: str, least: float, most: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise InputError(f"{where}: {name} is {short_repr(value)}; give a number from {least:g} to {most:g}")
    return number


# --- JSON ------------------------------------------------------------------------------------------------------------

Recording = tuple[float, float, list[tuple[float, float]]]
"""Of a user: the clock at which the recording starts, its length, and the intervals from its start on."""


def _of_users(text: str, path: str, count: int) -> AvailabilityIntervals:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {error.lineno} is not valid JSON ({error.msg}); correct it") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path} is not usable JSON (too deep, or a number too long); correct it") from None
    users = list(document.items()) if isinstance(document, dict) else []
    if not users:
        raise InputError(f"{path} has no users; give a trace of FLASH or FedScale, or a CSV file")
    read = _reader(users[0][1], path)
    found = [read(entry, f"{path} user {short_repr(name)}") for name, entry in users[:count]]
    if not any(intervals for _, _, intervals in found):
        raise InputError(f"{path}: none of the {len(found)} users is ever there; give another trace")
    if sum(len(intervals) for _, _, intervals in found) * -(-count // len(found)) > MAX_INTERVALS:
        raise InputError(f"{path} has more than {MAX_INTERVALS:,} intervals for {count} devices; keep fewer")
    devices = [found[i % len(found)] for i in range(count)]
    times = [np.array(intervals).reshape(-1, 2) for _, _, intervals in devices]
    both = np.concatenate(times)
    first = np.concatenate(([0], np.cumsum([len(own) for own in times])))
    starts, periods = (np.array([device[i] for device in devices]) for i in (0, 1))
    return AvailabilityIntervals(first, both[:, 0].copy(), both[:, 1].copy(), None, starts, periods)


def _reader(entry: Any, path: str) -> Callable[[Any, str], Recording]:
    """What reads the users of a file whose first one is this."""
    fields = set(entry) if isinstance(entry, dict) else set()
    for needed, read in _READERS:
        if needed <= fields:
            return read
    if {"computation", "communication"} <= fields:
        raise InputError(
            f"{path} is FedScale's device capacity, not who is there; put its ms per sample, / 1000, into "
            "devices.seconds_per_sample"
        )
    known = " or ".join("{" + ", ".join(sorted(needed)) + "}" for needed, _ in _READERS)
    raise InputError(f"{path}: the first user is {short_repr(entry)}; give objects with {known}")


def _cached_timer(entry: Any, where: str) -> Recording:
    """FLASH's cached_timers.json: ``ready_time`` in seconds from 2020-01-02; a user without success is never there."""
    if not isinstance(entry, dict) or not entry.get("isSuccess", True):
        return 0.0, 1.0, []
    start_s = _number(entry.get("trace_start"), "trace_start", where, -LATEST_S, LATEST_S)
    end_s = _number(entry.get("trace_end"), "trace_end", where, -LATEST_S, LATEST_S)
    ready = entry.get("ready_time")
    if not isinstance(ready, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in ready):
        raise InputError(f"{where}: ready_time is {short_repr(ready)}; give a list of pairs [from, until]")
    return start_s, end_s - start_s, _checked(ready, start_s, end_s, "ready_time", where)


def _fedscale(entry: Any, where: str) -> Recording:
    """FedScale's client_behave_trace: there from active[j] to inactive[j], again after finish_time seconds."""
    active, inactive = (entry.get(name) if isinstance(entry, dict) else None for name in ("active", "inactive"))
    if not isinstance(active, list) or not isinstance(inactive, list) or len(active) != len(inactive):
        raise InputError(f"{where}: active and inactive are not lists of the same length; give pairs of times")
    end_s = _number(entry.get("finish_time"), "finish_time", where, 0.0, LATEST_S)
    pairs = list(zip(active, inactive, strict=True))
    return 0.0, end_s, _checked(pairs, 0.0, end_s, "active", where)


def _checked(pairs: list[Any], start_s: float, end_s: float, name: str, where: str) -> list[tuple[float, float]]:
    """The intervals in order, from the start on; those of no length, which recordings have, are left out."""
    if end_s <= start_s:
        raise InputError(f"{where}: its trace ends at {end_s:g}, not after its start, {start_s:g}")
    found: list[tuple[float, float]] = []
    last_s = start_s
    for pair in pairs:
        begin_s, until_s = (_number(value, name, where, start_s, end_s) for value in pair)
        if until_s < begin_s:
            raise InputError(f"{where}: an interval is from {begin_s:g} to {until_s:g}; let it end after it begins")
        if begin_s < last_s:
            raise InputError(f"{where}: the interval from {begin_s:g} overlaps the one before, up to {last_s:g}")
        if until_s > begin_s:
            found.append((begin_s - start_s, until_s - start_s))
        last_s = until_s
    return found


def _flash_events(entry: Any, where: str) -> Recording:
    """FLASH's state_traces.json: ready while locked, charging and on Wi-Fi, by its own rules.

    A user whose events cannot be read is never there, as in FLASH, and a stay that the recording cuts off is not
    counted. FLASH looks at the locked screen only, so screen_on, screen_off and battery levels change nothing.
    """
    messages = entry.get("messages") if isinstance(entry, dict) else None
    if not isinstance(messages, str):
        raise InputError(f"{where}: messages is {short_repr(messages)}; give its events as text")
    state = {"charged": False, "wifi": False, "locked": False, "screen": False}
    pairs: list[tuple[float, float]] = []
    clock_s: list[float] = []
    began_s: float | None = None
    for at_s, event in _events(messages):
        if at_s is None or (clock_s and at_s < clock_s[-1]):
            return 0.0, 1.0, []
        clock_s.append(at_s)
        if event in _FLASH_STATES:
            which, on = _FLASH_STATES[event]
            state[which] = on
        elif not event.endswith("%"):
            return 0.0, 1.0, []
        ready = state["charged"] and state["wifi"] and state["locked"]
        if ready and began_s is None:
            began_s = at_s
        elif not ready and began_s is not None:
            pairs.append((began_s, at_s))
            began_s = None
    if not clock_s or clock_s[-1] == clock_s[0]:
        return 0.0, 1.0, []
    return clock_s[0], clock_s[-1] - clock_s[0], _checked(pairs, clock_s[0], clock_s[-1], "messages", where)


def _events(messages: str) -> Iterator[tuple[float | None, str]]:
    """The events of a user, in seconds from 2020-01-02; None for a time that cannot be read."""
    for line in messages.split("\n"):
        if not line.strip():
            continue
        time, tab, event = line.strip().partition("\t")
        try:
            at = datetime.strptime(time.strip(), _FLASH_TIME)
        except ValueError:
            at = None
        yield (at - _FLASH_START).total_seconds() if at is not None and tab else None, event.strip().lower()


_READERS: tuple[tuple[set[str], Callable[[Any, str], Recording]], ...] = (
    ({"active", "inactive", "finish_time"}, _fedscale),
    ({"ready_time", "trace_start", "trace_end"}, _cached_timer),
    ({"messages"}, _flash_events),
)
