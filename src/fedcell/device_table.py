"""Devices from a CSV or JSON file, as `fedcell plan` and the dashboard read them.

Each of the two times comes straight from a column, or from physical ones:

    upload_s    or  snr_db  or  distance_m [power_dbm_per_mhz]
    compute_s   or  samples [seconds_per_sample] [samples_per_second]     (then its mean, a D + D/mu)

with two columns more if wanted: ``device`` (a name) and ``must_include`` (true or false). Nothing read here is trusted:
sizes are limited, every value is checked, and each mistake gets one sentence with the file, the line and the value.
"""

import csv
import difflib
import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedcell import units
from fedcell.errors import InputError
from fedcell.schedule.bandwidth import LARGEST_S, SMALLEST_S, Bools, Floats
from fedcell.world import Cell, link_snr, path_loss_db, spectral_efficiency
from fedcell.world.cell import PAPER_POWER_W_PER_HZ

MAX_BYTES = 256 * 2**20
MAX_ROWS = 5_000_000
MAX_CELL_CHARACTERS = 1000
MAX_COLUMNS = 100

NUMBERS = (
    "upload_s",
    "snr_db",
    "distance_m",
    "power_dbm_per_mhz",
    "compute_s",
    "samples",
    "seconds_per_sample",
    "samples_per_second",
)
COLUMNS = ("device", "must_include", *NUMBERS)
_BOUNDS = {
    "upload_s": (SMALLEST_S, LARGEST_S),
    "snr_db": (-1000.0, 1000.0),
    "distance_m": (0.0, 1e9),
    "power_dbm_per_mhz": (-1000.0, 1000.0),
    "compute_s": (0.0, LARGEST_S),
    "samples": (1.0, 1e15),
    "seconds_per_sample": (0.0, 1e15),
    "samples_per_second": (1e-15, 1e300),
}


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """The devices of a file.

    Attributes:
        names: M names, numbers from 0 where the file gives none.
        upload_s: (M,) seconds to upload with the whole band.
        compute_s: (M,) seconds of local training.
        must_include: (M,) booleans, or None.
        notes: what was assumed or ignored, a sentence each, to show to the user.
    """

    names: tuple[str, ...]
    upload_s: Floats
    compute_s: Floats
    must_include: Bools | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Rows:
    """Cells by column, and how to name a row in a message."""

    source: str
    columns: dict[str, list[Any]]
    places: Sequence[str]


def read_devices(source: str | Path, cell: Cell | None = None) -> DeviceTable:
    """Read devices from a CSV or JSON file, or from standard input if the source is ``-``.

    Args:
        source: a path, or ``-``.
        cell: the radio that turns SNR or distance into upload times.
    """
    if str(source) == "-":
        return parse_devices(_limited(sys.stdin.buffer, "standard input"), "standard input", cell)
    try:
        with Path(source).open("rb") as file:
            return parse_devices(_limited(file, str(source)), str(source), cell)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}; give a CSV or JSON file of devices, or -") from None


def _limited(file: BinaryIO, source: str) -> bytes:
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{source} is larger than {MAX_BYTES >> 20} MiB; split it or drop columns")
    return content


def parse_devices(content: bytes, source: str, cell: Cell | None = None) -> DeviceTable:
    """Read devices from the bytes of a CSV or JSON document; ``source`` names it in messages."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source} is not UTF-8 text (byte 0x{content[error.start]:02x} at offset {error.start}); save it as UTF-8"
        ) from None
    if not text.strip():
        raise InputError(f"{source} is empty; give a header line and at least one device")
    rows = _from_json(text, source) if text.lstrip()[0] in "[{" else _from_csv(text, source)
    if not rows.places:
        raise InputError(f"{source} has no devices; give at least one below the header")
    return _table(rows, cell or Cell())


def _from_csv(text: str, source: str) -> _Rows:
    header_line = text.split("\n", 1)[0]
    if len(header_line) > MAX_COLUMNS * MAX_CELL_CHARACTERS or header_line.count(",") >= MAX_COLUMNS:
        raise InputError(
            f"{source}: the header is {len(header_line):,} characters long; give at most {MAX_COLUMNS} columns"
        )
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        _check_header(header, source)
        cells: list[list[Any]] = [[] for _ in header]
        places: list[str] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(f"{source} line {reader.line_num} has {len(row)} cells, the header {len(header)}")
            for column, value in zip(cells, row, strict=True):
                column.append(value)
            places.append(f"line {reader.line_num}")
            if len(places) > MAX_ROWS:
                raise InputError(f"{source} has more than {MAX_ROWS:,} devices; split it")
    except csv.Error as error:
        raise InputError(f"{source} line {reader.line_num} is no valid CSV ({error}); correct the line") from None
    return _Rows(source, dict(zip(header, cells, strict=True)), places)


def _from_json(text: str, source: str) -> _Rows:
    def no_constant(name: str) -> None:
        raise InputError(f"{source}: {name} is no number of JSON; give finite numbers")

    try:
        document = json.loads(text, parse_constant=no_constant)
    except json.JSONDecodeError as error:
        raise InputError(f"{source} line {error.lineno} is no valid JSON ({error.msg}); correct it") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source} is no valid JSON (too deep or a number too long); correct it") from None
    devices = document.get("devices", document) if isinstance(document, dict) else document
    if isinstance(devices, dict):  # columns
        lists = {name: value if isinstance(value, list) else [] for name, value in devices.items()}
        lengths = {name: len(value) for name, value in lists.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"{source}: the columns' lengths differ ({lengths}); give lists of one length")
        columns = lists
    elif all(isinstance(device, dict) for device in devices):
        names = dict.fromkeys(name for device in devices for name in device)
        columns = {name: [device.get(name, "") for device in devices] for name in names}
    else:
        raise InputError(f'{source}: give a list of objects, one for each device, such as [{{"upload_s": 1, ...}}]')
    size = len(next(iter(columns.values()), []))
    if len(columns) > MAX_COLUMNS or size > MAX_ROWS:
        raise InputError(f"{source} is too large; give at most {MAX_ROWS:,} devices and {MAX_COLUMNS} columns")
    if size:
        _check_header(list(columns), source)
    return _Rows(source, columns, [f"device {i}" for i in range(size)])


def _check_header(header: list[str], source: str) -> None:
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise InputError(f"{source} has the column {min(twice)!r} twice; keep one")
    for time, alternatives in (("upload", ("upload_s", "snr_db", "distance_m")), ("compute", ("compute_s", "samples"))):
        present = [name for name in alternatives if name in header]
        if len(present) > 1:
            raise InputError(f"{source} has both {' and '.join(present)}, which say the same; keep one")
        if not present:
            near = difflib.get_close_matches(alternatives[0], header, n=1, cutoff=0.6)
            hint = f"rename the column {near[0]!r}" if near else f"add one (its columns are {_listed(header)})"
            hint += "; cells are separated by commas" if len(header) == 1 and ";" in header[0] else ""
            raise InputError(f"{source} has no {time} column {' or '.join(alternatives)}; {hint}")


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name[:40]) for name in names]
    return ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")


def _table(rows: _Rows, cell: Cell) -> DeviceTable:
    notes = []
    unknown = [name for name in rows.columns if name not in COLUMNS]
    if unknown:
        notes.append(f"ignored the columns {_listed(unknown)} of {rows.source}; known are {', '.join(COLUMNS)}")
    number = {name: _numbers(rows, name) for name in NUMBERS if name in rows.columns}
    upload_s = _upload_s(number, len(rows.places), cell, notes)
    compute_s = _compute_s(number, len(rows.places), notes)
    for name, values in (("upload_s", upload_s), ("compute_s", compute_s)):
        low, high = _BOUNDS[name]
        bad = np.flatnonzero(~((values >= low) & (values <= high)))
        if bad.size:
            raise InputError(
                f"{rows.source} {rows.places[bad[0]]}: its columns give {name} = {values[bad[0]]:g}; "
                f"a time must be between {low:g} and {high:g} s"
            )
    names = tuple(str(value) for value in rows.columns.get("device", range(len(rows.places))))
    return DeviceTable(names, upload_s, compute_s, _flags(rows), tuple(notes))


def _numbers(rows: _Rows, name: str) -> Floats:
    values = np.empty(len(rows.places))
    low, high = _BOUNDS[name]
    for i, cell in enumerate(rows.columns[name]):
        try:
            values[i] = math.nan if isinstance(cell, bool | list | dict | None.__class__) else float(cell)
        except (ValueError, OverflowError):
            values[i] = math.nan
        if not low <= values[i] <= high:
            _refuse(rows, name, i)
    return values


def _refuse(rows: _Rows, name: str, row: int) -> None:
    cell, (low, high) = rows.columns[name][row], _BOUNDS[name]
    shown = repr(cell if len(str(cell)) <= 60 else f"{str(cell)[:57]}...")
    place = f"{rows.source} {rows.places[row]}: {name} is {shown}"
    try:
        value = float(cell)
    except (ValueError, TypeError, OverflowError):
        value = math.nan
    if math.isnan(value):
        raise InputError(f"{place}; give a number")
    if name == "upload_s" and value == math.inf:
        raise InputError(f"{place}: at a rate of zero the model never arrives; leave the device out")
    raise InputError(f"{place}; give a number between {low:g} and {high:g}")


def _flags(rows: _Rows) -> Bools | None:
    if "must_include" not in rows.columns:
        return None
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    flags = np.empty(len(rows.places), dtype=np.bool_)
    for i, cell in enumerate(rows.columns["must_include"]):
        word = str(cell).strip().lower()
        if word not in words:
            raise InputError(f"{rows.source} {rows.places[i]}: must_include is {cell!r}; write true or false")
        flags[i] = words[word]
    return flags


def _upload_s(number: dict[str, Floats], size: int, cell: Cell, notes: list[str]) -> Floats:
    if "upload_s" in number:
        return number["upload_s"]
    if "snr_db" in number:
        snr = units.db_to_ratio(number["snr_db"])
    else:
        power: Floats | float = PAPER_POWER_W_PER_HZ
        if "power_dbm_per_mhz" in number:
            power = units.dbm_per_mhz(number["power_dbm_per_mhz"])
        else:
            notes.append("no column power_dbm_per_mhz: took 7 dBm/MHz, as in the paper")
        snr = link_snr(cell, np.broadcast_to(power, size), path_loss_db(cell, number["distance_m"]))
    with np.errstate(divide="ignore", over="ignore"):
        upload_s: Floats = cell.model_bits / (cell.bandwidth_hz * spectral_efficiency(snr))
    return upload_s


def _compute_s(number: dict[str, Floats], size: int, notes: list[str]) -> Floats:
    if "compute_s" in number:
        return number["compute_s"]
    speeds = {}
    for name, words in (("seconds_per_sample", "0.002"), ("samples_per_second", "4000")):
        speeds[name] = number.get(name, np.full(size, float(words)))
        if name not in number:
            notes.append(f"no column {name}: took {words}, as in the paper")
    with np.errstate(over="ignore"):
        mean_s: Floats = number["samples"] * (speeds["seconds_per_sample"] + 1.0 / speeds["samples_per_second"])
    return mean_s
