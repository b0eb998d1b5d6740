"""Devices from a CSV or JSON file, as `fedcell plan` and the dashboard read them.

Each of the two times comes straight from a column, or from physical ones:

    upload_s    or  rate_bps  or  snr_db  or  distance_m [power_dbm or power_dbm_per_mhz]
    compute_s   or  samples [seconds_per_sample] [samples_per_second]     (then its mean, a D + D/mu an epoch)

The last two also give the SNR, which the link law power needs. There may be more columns: ``device`` (a name),
``must_include`` (true or false), and ``profile:NAME`` for what a device's data is like, such as ``profile:cat`` and
``profile:dog`` with the number of samples of each label. A device has a number in every profile column, or in none:
then its profile is unknown. Nothing read here is trusted: sizes are limited, every value is checked, and each mistake
gets one sentence with the file, the line and the value.
"""

import csv
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedcell import defaults, units
from fedcell.errors import UNPRINTABLE, InputError, nearest
from fedcell.types import Bools, Floats
from fedcell.units import MAX_S, MIN_S
from fedcell.world import Cell, link_snr, path_loss_db
from fedcell.world.channel import unchecked_upload_s
from fedcell.world.device import PAPER_POWER_W_PER_HZ, mean_compute_s

MAX_BYTES = 256 * 2**20
MAX_ROWS = 5_000_000
MAX_COLUMNS = 100
MAX_PROFILE_COLUMNS = 1000
MAX_PROFILE_NUMBERS = 20_000_000
"""Of all devices together: a JSON file may name a column once, and so give a million devices an empty cell."""
MAX_LINE_CHARACTERS = 100_000
MAX_NAME_CHARACTERS = 1000
MAX_HEADING_CHARACTERS = 100
MAX_EPOCHS = 1_000_000
_CHUNK_ROWS = 10_000

UPLOAD = ("upload_s", "rate_bps", "snr_db", "distance_m")
COMPUTE = ("compute_s", "samples")
POWER = ("power_dbm", "power_dbm_per_mhz")
_BOUNDS = {
    "upload_s": (MIN_S, MAX_S),
    "rate_bps": (1e-15, 1e300),
    "snr_db": (-1000.0, 1000.0),
    "distance_m": (0.0, 1e9),
    "power_dbm": (-1000.0, 1000.0),
    "power_dbm_per_mhz": (-1000.0, 1000.0),
    "compute_s": (0.0, MAX_S),
    "samples": (1.0, 1e15),
    "seconds_per_sample": (0.0, 1e15),
    "samples_per_second": (1e-15, 1e300),
}
COLUMNS = ("device", "must_include", *_BOUNDS)
PROFILE = "profile:"
"""What the name of a profile column begins with."""
_MAX_ENTRY = 1e15
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """The devices of a file.

    Attributes:
        names: M names, numbers from 0 where the file gives none.
        upload_s: (M,) seconds to upload with the whole band.
        compute_s: (M,) seconds of local training.
        must_include: (M,) booleans, or None.
        profiles: (M, d) what the devices' data is like, the absolute values of a row summing to 1, or a row of NaN
            where it is unknown; None without profile columns.
        notes: what was assumed or ignored, a sentence each, to show to the user.
        snr: (M,) signal-to-noise ratio with the entire band, linear; None where the file does not tell.
        samples: (M,) training samples on a device; likewise.
        total_power: whether the SNR follows from a total transmit power, power_dbm, over the entire band.
    """

    names: tuple[str, ...]
    upload_s: Floats
    compute_s: Floats
    must_include: Bools | None
    profiles: Floats | None
    notes: tuple[str, ...]
    snr: Floats | None = None
    total_power: bool = False
    samples: Floats | None = None


@dataclass(frozen=True)
class _Rows:
    """The cells of the known columns, and how to name a row in a message.

    Attributes:
        source: the file.
        header: all its columns, in its order.
        columns: the cells of those that are known; text from CSV, anything from JSON, None where a device has none.
        lines: the line each row ended on, None for JSON.
    """

    source: str
    header: Sequence[str]
    columns: dict[str, list[Any]]
    lines: list[int] | None

    def __len__(self) -> int:
        return max((len(cells) for cells in self.columns.values()), default=0)

    def refuse(self, row: int, complaint: str) -> NoReturn:
        place = f"device {row}" if self.lines is None else f"line {self.lines[row]}"
        raise InputError(f"{self.source} {place}: {complaint}")


@dataclass(frozen=True, eq=False)
class DeviceColumns:
    """What a document says of its devices, checked; a cell makes upload times of it.

    Attributes:
        rows: the document.
        number: (M,) each, the numbers of its columns.
        names: M names.
        must_include: (M,) booleans, or None.
        profiles: (M, d), or None.
    """

    rows: _Rows
    number: dict[str, Floats]
    names: tuple[str, ...]
    must_include: Bools | None
    profiles: Floats | None

    def table(self, cell: Cell, epochs: float = 1.0) -> DeviceTable:
        """The devices in this cell; where compute times follow from samples, they are for so many local epochs."""
        check_epochs(epochs)
        rows, number, notes = self.rows, self.number, []
        unknown = [name for name in rows.header if name and not _is_known(name)]
        if unknown:
            known = ", ".join((*COLUMNS, f"{PROFILE}NAME"))
            notes.append(f"ignored the columns {_listed(unknown)} of {rows.source}; known are {known}")
        with np.errstate(all="ignore"):  # what leaves the floats is refused below, with its row
            snr = _snr(number, len(rows), cell, notes)
            upload_s = _upload_s(number, snr, cell)
            compute_s = _compute_s(number, len(rows), epochs, notes)
        for name, values, origins in (("upload_s", upload_s, UPLOAD), ("compute_s", compute_s, COMPUTE)):
            bad = _outside(values, name)
            if bad.size:
                origin = next(column for column in origins if column in number)
                rows.refuse(
                    int(bad[0]),
                    f"{origin} is {_shown(rows.columns[origin][bad[0]])}, which gives {name} = {values[bad[0]]:g}, "
                    f"beyond {MIN_S:g} to {MAX_S:g} s; change it or leave the device out",
                )
        total = snr is not None and "distance_m" in number and "power_dbm" in number
        told = self.must_include, self.profiles
        return DeviceTable(self.names, upload_s, compute_s, *told, tuple(notes), snr, total, number.get("samples"))


def check_epochs(epochs: float) -> None:
    """Refuse what is no number of local epochs."""
    if not (0.0 < epochs <= MAX_EPOCHS and (epochs < 1.0 or epochs == int(epochs))):
        raise InputError(
            f"epochs is {epochs:g}; give a whole number, at most {MAX_EPOCHS:,}, or a positive fraction below 1"
        )


def read_devices(source: str | Path, cell: Cell | None = None, epochs: float = 1.0) -> DeviceTable:
    """Read devices from a CSV or JSON file, or from standard input if the source is ``-``.

    Args:
        source: a path, or ``-``.
        cell: the radio that turns SNR or distance into upload times.
        epochs: local epochs in a compute time that follows from samples.
    """
    name = "standard input" if str(source) == "-" else str(source)
    try:
        if str(source) != "-":
            with Path(source).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        elif sys.stdin is None:
            raise InputError("standard input is closed; give a CSV or JSON file of devices")
        else:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {name[:200]!r}: {error.strerror}; give a CSV or JSON file of devices, or -"
        ) from None
    return parse_devices(content, name, cell, epochs)


def parse_devices(content: bytes, source: str, cell: Cell | None = None, epochs: float = 1.0) -> DeviceTable:
    """Read devices from the bytes of a CSV or JSON document; ``source`` names it in messages."""
    return parse_columns(content, source).table(cell or Cell(), epochs)


def parse_columns(content: bytes, source: str) -> "DeviceColumns":
    """Read what a document says of devices, whatever the cell."""
    if len(content) > MAX_BYTES:
        raise InputError(f"{source} is larger than {MAX_BYTES >> 20} MiB; split it or drop columns")
    text = ""
    try:
        text = content.decode().removeprefix("\ufeff")
        bad = content.find(0)  # UTF-16 without its mark is UTF-8 full of zeros
    except UnicodeDecodeError as error:
        bad = error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise InputError(f"{source} line {line} is not UTF-8 text (byte 0x{content[bad]:02x}); save it as UTF-8")
    first = re.search(r"\S", text)
    if first is None:
        raise InputError(f"{source} is empty; give a header line and at least one device")
    rows = _from_json(text, source) if first[0] in "[{" else _from_csv(content, source)
    if not len(rows):
        raise InputError(f"{source} has no devices; give at least one")
    number = {name: _numbers(rows, name) for name in _BOUNDS if name in rows.columns}
    return DeviceColumns(rows, number, _names(rows), _flags(rows), _profiles(rows))


def _from_csv(content: bytes, source: str) -> _Rows:
    # A stream over the bytes: a StringIO would take four bytes a character.
    stream = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    short = len(content) <= MAX_LINE_CHARACTERS  # then so is every line
    reader = csv.reader(stream if short else _lines(stream, source), strict=True)
    filled = (row for row in reader if "".join(row).strip())
    try:
        header = [name.strip() for name in next(filled, [])]
        twice = {name for name, count in Counter(header).items() if name and count > 1}
        if twice:
            raise InputError(f"{source} has the column {_shown(min(twice))} twice; keep one")
        _check_header(header, source)
        columns: dict[str, list[Any]] = {name: [] for name in header if _is_known(name)}
        known = [(i, columns[name]) for i, name in enumerate(header) if name in columns]
        width, lines = len(header), list[int]()
        while chunk := _chunk(filled, reader, lines):  # columns that nobody knows are not kept
            if any(len(row) != width for row in chunk):
                bad = next(j for j, row in enumerate(chunk) if len(row) != width)
                raise InputError(
                    f"{source} line {lines[len(lines) - len(chunk) + bad]} has {len(chunk[bad])} cells but the header "
                    f"has {width}; give one cell a column, and decimals with a point"
                )
            for i, cells in known:
                cells += [row[i] for row in chunk]
            if len(lines) > MAX_ROWS:
                raise InputError(f"{source} has more than {MAX_ROWS:,} devices; split it")
            _check_profile_numbers(header, len(lines), source)
    except csv.Error as error:
        raise InputError(f"{source} line {reader.line_num} is not valid CSV ({error}); correct its quotes") from None
    return _Rows(source, header, columns, lines)


def _chunk(filled: Iterator[list[str]], reader: Any, lines: list[int]) -> list[list[str]]:
    """The next rows; the line that each ended on is added to ``lines``."""
    chunk = []
    for row in filled:
        chunk.append(row)
        lines.append(reader.line_num)
        if len(chunk) == _CHUNK_ROWS:
            break
    return chunk


def _lines(stream: io.TextIOWrapper, source: str) -> Iterator[str]:
    """Yield lines of bounded length: a file that is one line never becomes a list of a hundred million cells."""
    number = 1
    while line := stream.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise InputError(
                f"{source} line {number} is longer than {MAX_LINE_CHARACTERS:,} characters; give a line for each device"
            )
        yield line
        number += 1


def _from_json(text: str, source: str) -> _Rows:
    def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
            raise InputError(f"{source}: an object has {_shown(twice)} twice; keep one")
        return made

    if text.count("{") + text.count("[") > MAX_ROWS:  # counted first: an empty object takes 20 times its text's memory
        raise InputError(f"{source} has more than {MAX_ROWS:,} objects and lists; split it")
    try:
        document = json.loads(text, object_pairs_hook=refuse_twice)
    except json.JSONDecodeError as error:
        raise InputError(f"{source} line {error.lineno} is not valid JSON ({error.msg}); correct it") from None
    except InputError:
        raise
    except (RecursionError, ValueError):
        raise InputError(f"{source} is not usable JSON (too deep, or a number too long); correct it") from None
    devices = document.get("devices", document) if isinstance(document, dict) else document
    if isinstance(devices, dict):
        return _from_lists(devices, source)
    if not isinstance(devices, list):
        raise InputError(f'{source}: devices is {_shown(devices)}; give a list such as [{{"upload_s": 1, ...}}, ...]')
    for i, device in enumerate(devices):
        if not isinstance(device, dict):
            raise InputError(
                f'{source} device {i}: it is {_shown(device)}; give an object such as {{"upload_s": 1, ...}}'
            )
    header = list(dict.fromkeys(chain.from_iterable(devices)))
    if devices:
        _check_header(header, source)
    _check_profile_numbers(header, len(devices), source)
    columns = {name: [device.get(name) for device in devices] for name in header if _is_known(name)}
    return _Rows(source, header, columns, None)


def _from_lists(document: dict[str, Any], source: str) -> _Rows:
    """JSON by columns: {"upload_s": [...], "compute_s": [...]}."""
    _check_header(list(document), source)
    columns = {name: cells for name, cells in document.items() if _is_known(name)}
    for name, cells in columns.items():
        if not isinstance(cells, list):
            raise InputError(f"{source}: {name} is {_shown(cells)}; give a list with an entry for each device")
    (first, cells), *others = columns.items()
    for name, more in others:
        if len(more) != len(cells):
            raise InputError(
                f"{source}: {first} has {len(cells)} entries but {name} has {len(more)}; give one for each device"
            )
    _check_profile_numbers(list(columns), len(cells), source)
    return _Rows(source, list(document), columns, None)


def _check_header(header: Sequence[str], source: str) -> None:
    profiles = _profile_columns(header)
    if len(header) - len(profiles) > MAX_COLUMNS:
        raise InputError(f"{source} has {len(header) - len(profiles):,} columns; give at most {MAX_COLUMNS}")
    if len(profiles) > MAX_PROFILE_COLUMNS:
        raise InputError(f"{source} has {len(profiles):,} profile columns; give at most {MAX_PROFILE_COLUMNS:,}")
    for name in profiles:
        if UNPRINTABLE.search(name) or len(name) > MAX_HEADING_CHARACTERS:
            raise InputError(
                f"{source} has a column {_shown(name)}; give it a name of at most {MAX_HEADING_CHARACTERS} printable "
                "characters"
            )
    for time, alternatives in (("upload", UPLOAD), ("compute", COMPUTE), ("power", POWER)):
        present = [name for name in alternatives if name in header]
        if len(present) > 1:
            raise InputError(f"{source} has both {' and '.join(present)}, which say the same; keep one")
        if not present and alternatives is not POWER:
            raise InputError(
                f"{source} has no {time} column {' or '.join(alternatives)}; {_advice(alternatives, header)}"
            )


def _check_profile_numbers(header: Sequence[str], devices: int, source: str) -> None:
    columns = len(_profile_columns(header))
    if columns * devices > MAX_PROFILE_NUMBERS:
        raise InputError(
            f"{source} has {columns:,} profile columns for {devices:,} devices or more; give at most "
            f"{MAX_PROFILE_NUMBERS:,} numbers in all"
        )


def _profile_columns(header: Sequence[str]) -> list[str]:
    return [name for name in header if name.startswith(PROFILE)]


def _is_known(name: str) -> bool:
    return name in COLUMNS or name.startswith(PROFILE)


def _advice(wanted: Iterable[str], header: Sequence[str]) -> str:
    if any(";" in name or "\t" in name for name in header):
        return f"separate the cells by commas (the header is {_listed(header)})"
    strange = {name.lower(): name for name in header if not _is_known(name)}
    for name in wanted:
        if near := nearest(name, strange):
            return f"rename {_shown(strange[near])} to {name}"
    return f"add one (its columns are {_listed(header)})"


def _listed(names: Sequence[str]) -> str:
    return (", ".join(_shown(name) for name in names[:8]) or "none") + (", ..." if len(names) > 8 else "")


def _shown(cell: object) -> str:
    """A cell for a message: short, quoted, harmless."""
    if isinstance(cell, list | dict):
        return "a list" if isinstance(cell, list) else "an object"
    if cell is None or cell == "":
        return "missing"
    return repr(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]!r}..."


def _numbers(rows: _Rows, name: str) -> Floats:
    cells = rows.columns[name]
    values = _all_floats(cells)
    bad = _outside(values, name)
    if bad.size:
        row = int(bad[0])
        complaint = f"{name} is {_shown(cells[row])}"
        if np.isnan(values[row]):
            rows.refuse(row, f"{complaint}; give a number" + (" with a decimal point" * ("," in str(cells[row]))))
        if name == "upload_s" and "inf" in str(cells[row]).lower():
            rows.refuse(row, f"{complaint}: at a rate of zero the model never arrives; leave the device out")
        low, high = _BOUNDS[name]
        rows.refuse(row, f"{complaint}; give a number between {low:g} and {high:g}")
    return values


def _all_floats(cells: list[Any]) -> Floats:
    """What _number makes of each cell. The first way is ten times quicker, and good for cells that are all numbers."""
    try:
        if "_" not in "".join(cells):
            return np.fromiter(map(float, cells), np.float64, len(cells))
    except (TypeError, ValueError, OverflowError):
        pass
    return np.fromiter(map(_number, cells), np.float64, len(cells))


def _number(cell: Any) -> float:
    """The cell as a float, NaN if it is none: True and 1_5 are numbers to Python, slips to the user."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def _outside(values: Floats, name: str) -> Any:
    low, high = _BOUNDS[name]
    return np.flatnonzero(~((values >= low) & (values <= high)))


def _names(rows: _Rows) -> tuple[str, ...]:
    cells = rows.columns.get("device", [None] * len(rows))
    if rows.lines is not None and "device" in rows.columns and not UNPRINTABLE.search("".join(cells)):
        stripped = [cell.strip() for cell in cells]
        if max(map(len, stripped)) <= MAX_NAME_CHARACTERS:
            return tuple([name or str(i) for i, name in enumerate(stripped)])
    names = []
    for i, cell in enumerate(cells):
        name = "" if cell is None else str(cell).strip() if isinstance(cell, str | int | float) else None
        if name is None or UNPRINTABLE.search(name) or len(name) > MAX_NAME_CHARACTERS:
            rows.refuse(
                i, f"device is {_shown(cell)}; give a name of at most {MAX_NAME_CHARACTERS} printable characters"
            )
        names.append(name or str(i))
    return tuple(names)


def _flags(rows: _Rows) -> Bools | None:
    if "must_include" not in rows.columns:
        return None
    flags = np.empty(len(rows), dtype=np.bool_)
    for i, cell in enumerate(rows.columns["must_include"]):
        word = "" if cell is None else str(cell).strip().lower() if isinstance(cell, str | int) else "?"
        if word not in _WORDS:
            rows.refuse(i, f"must_include is {_shown(cell)}; write true or false")
        flags[i] = _WORDS[word]
    return flags


def _profiles(rows: _Rows) -> Floats | None:
    names = _profile_columns(rows.header)
    if not names:
        return None
    profiles = np.column_stack([_all_floats(rows.columns[name]) for name in names])
    good = np.abs(profiles) <= _MAX_ENTRY
    for row in np.flatnonzero(~good.all(axis=1)).tolist():
        cells = [rows.columns[name][row] for name in names]
        if any(cell is not None and str(cell).strip() for cell in cells):
            _refuse_profile(rows, row, names, good[row].tolist())
    zero = np.flatnonzero((profiles == 0.0).all(axis=1))
    if zero.size:
        rows.refuse(
            int(zero[0]), "its profile is 0 throughout; give other numbers, or leave all empty if it is unknown"
        )
    shares: Floats = profiles / np.abs(profiles).sum(axis=1, keepdims=True)
    return shares


def _refuse_profile(rows: _Rows, row: int, names: Sequence[str], good: Sequence[bool]) -> NoReturn:
    name = names[good.index(False)]
    cell = rows.columns[name][row]
    if cell is None or not str(cell).strip():
        rows.refuse(
            row, f"{name} is missing but other profile columns are not; give all, or leave all empty if it is unknown"
        )
    comma = " with a decimal point" * ("," in str(cell))
    span = "" if math.isnan(_number(cell)) else f" between {-_MAX_ENTRY:g} and {_MAX_ENTRY:g}"
    rows.refuse(row, f"{name} is {_shown(cell)}; give a number{comma}{span}")


def _snr(number: dict[str, Floats], size: int, cell: Cell, notes: list[str]) -> Floats | None:
    """(M,) the SNR with the entire band: a total power is spread over it, P h / (N0 B)."""
    given = next((name for name in POWER if name in number), None)
    if "distance_m" not in number:
        if given is not None:
            origin = next(name for name in UPLOAD if name in number)
            notes.append(f"the column {given} is not used: {origin} already says what it is for")
        return units.db_to_ratio(number["snr_db"]) if "snr_db" in number else None
    power: Floats | float = PAPER_POWER_W_PER_HZ
    if given == "power_dbm":
        power = units.dbm(number["power_dbm"]) / cell.bandwidth_hz
    elif given is not None:
        power = units.dbm_per_mhz(number["power_dbm_per_mhz"])
    else:
        notes.append(f"no column power_dbm_per_mhz: took {defaults.POWER_DBM_PER_MHZ:g} dBm/MHz, as in the paper")
    return link_snr(cell, np.broadcast_to(power, size), path_loss_db(cell, number["distance_m"]))


def _upload_s(number: dict[str, Floats], snr: Floats | None, cell: Cell) -> Floats:
    if snr is not None:
        return unchecked_upload_s(cell, cell.rate.efficiency(snr))
    return number["upload_s"] if "upload_s" in number else cell.model_bits / number["rate_bps"]


def _compute_s(number: dict[str, Floats], size: int, epochs: float, notes: list[str]) -> Floats:
    if "compute_s" in number:
        return number["compute_s"]
    speeds = {}
    papers = {"seconds_per_sample": defaults.SECONDS_PER_SAMPLE, "samples_per_second": defaults.SAMPLES_PER_SECOND}
    for name, value in papers.items():
        speeds[name] = number.get(name, np.full(size, value))
        if name not in number:
            notes.append(f"no column {name}: took {value:g}, as in the paper")
    return mean_compute_s(epochs * number["samples"], speeds["seconds_per_sample"], speeds["samples_per_second"])
