"""Files: places checked before the work, writes whole or not at all, .npz files of anybody read with care, and TOML.

Only a regular file can be replaced as a whole. A device or a pipe is written to; ``-`` is standard output; a symbolic
link stays, and the file that it leads to is replaced.
"""

import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedcell.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


Write = Callable[[IO[bytes]], object]
"""Writes a file's content into an open, seekable binary file."""

STANDARD_OUTPUT = Path("-")
ROOM_BYTES = 2**18
"""A picture or a small table; if not even this fits on the disk, that is said before the work."""
IN_MEMORY_BYTES = 2**26
ALWAYS_UNPACKED_BYTES = 2**28
"""So much may be unpacked of any .npz file, however small."""
_OWN_DESCRIPTOR = re.compile(r"(?:/dev|/proc/(?:self|thread-self))/fd/(\d+)")


def replace_file(path: Path, write: Write, *, sync: bool = False) -> None:
    """Write a regular file under another name in its directory, then give it its own name.

    Args:
        path: the file, which need not exist; its permissions stay if it does.
        write: called with the new file.
        sync: whether the content must be on the disk before the file has its name, to survive a power cut.

    Raises:
        OSError: if it cannot be written; then the old file is as it was.
    """
    scratch = path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        with scratch.open("xb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            write(file)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_output(path: Path, write: Write) -> None:
    """Write a file that the user named, wherever it is: a regular file, a link, a device, a pipe or ``-``."""
    try:
        target = _target(path)
        if isinstance(target, Path) and not _is_special(target):
            replace_file(target, write)
            return
        # What goes through cannot be taken back: it is complete before the first byte is sent.
        with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as content:
            write(content)
            content.seek(0)
            sys.stdout.flush()
            with os.fdopen(os.dup(target) if isinstance(target, int) else os.open(target, os.O_WRONLY), "wb") as file:
                shutil.copyfileobj(content, file)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise _cannot_write(path, error) from None


def check_output(path: Path) -> Path:
    """Return the path, or raise an InputError if a file cannot be written there; nothing is left behind."""
    try:
        target = _target(path)
        if isinstance(target, int):
            os.fstat(target)
            return path
        if os.path.isdir(target):
            raise InputError(f"cannot write {path}: it is a directory; give the name of a file")
        if not os.path.isdir(target.parent):
            folder = path.parent if not os.path.islink(path) else target.parent
            raise InputError(f"cannot write {path}: {folder} is not a directory; create it first")
        if os.path.exists(target) and not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied")
        if not _is_special(target):
            _try_writing(target)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        if isinstance(error, InputError):
            raise
        raise _cannot_write(path, error) from None
    return path


def plain_name(text: str, most: int = 150) -> str:
    """The text, cut to ``most``, for a file's name: without signs that a shell or a file system takes for its own."""
    return re.sub(r"[^\w.=,+-]+", "-", text)[:most]


def make_folder(path: Path, option: str) -> None:
    """Make a folder unless it is there, or raise an InputError (naming the option) if it cannot be written into."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write into {str(path)[:200]}: {reason}; give another {option}") from None


@contextmanager
def directory_lock(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block with this folder; where folders cannot be locked, do not wait."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            from fcntl import LOCK_EX, flock

            place = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, place)
            flock(place, LOCK_EX)
        yield


@contextmanager
def atomic_directory(path: Path, option: str) -> Iterator[Path]:
    """Files of a folder that appear all together at the end, or not at all: nobody sees half a report.

    Args:
        path: the folder, which exists.
        option: with which it was given.

    Yields:
        Path: an empty folder inside it, to write them into.
    """
    scratch = Path(tempfile.mkdtemp(prefix=".fedcell-", dir=path))
    try:
        yield scratch
        for file in sorted(scratch.iterdir()):
            os.replace(file, path / file.name)
    except OSError as error:
        raise InputError(f"cannot write into {path}: {error.strerror}; give another {option}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _target(path: Path) -> Path | int:
    """What a name stands for: an open descriptor of this process, or a file that is no symbolic link."""
    if path == STANDARD_OUTPUT:
        return 1
    place = os.path.abspath(path)
    for _ in range(40):  # as many links as Linux follows
        if own := _OWN_DESCRIPTOR.fullmatch(place):  # opened by its name, a file would be cut to nothing first
            return int(own[1])
        if not os.path.islink(place):
            break
        place = os.path.join(os.path.realpath(os.path.dirname(place)), os.readlink(place))
    return Path(os.path.realpath(place))


def _is_special(target: Path) -> bool:
    """Whether there is something that cannot be replaced: a device, a pipe or a socket."""
    try:
        return not stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        return False


def _try_writing(target: Path) -> None:
    """Write a file beside the target, as large as a picture, and remove it again."""
    with tempfile.TemporaryFile(dir=target.parent) as file:
        file.write(bytes(ROOM_BYTES))


def _cannot_write(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"cannot write {str(path)[:200]}: {reason}; give another place")


def without_nan(value: Any) -> Any:
    """The document with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    return [without_nan(inner) for inner in value] if isinstance(value, list) else value


def to_json(document: Any, indent: int | None = None) -> str:
    """The document as JSON, with null for NaN and infinity, which JSON lacks."""
    import json  # when it is needed: start-up time

    return json.dumps(without_nan(document), indent=indent, allow_nan=False)


def unpacked_bytes(source: Path | IO[bytes]) -> int:
    """Return the bytes that a zip file says it unpacks to; zipfile reads no more, whatever is really there."""
    with zipfile.ZipFile(source) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def read_npz(source: Path | IO[bytes]) -> dict[str, "NDArray[Any]"]:
    """Read all arrays of a file that ``numpy.savez`` wrote: it does not compress, so they take no more than the file.

    Args:
        source: a path or an open file, of anybody: a zip may say that it unpacks to a thousand times its size.

    Returns:
        The arrays by name.

    Raises:
        ValueError: if anything is wrong with the content.
        OSError: if the file cannot be read.
    """
    import numpy as np

    if isinstance(source, Path):
        if not source.is_file():
            raise ValueError("it is not a regular file")  # a pipe would never end
        with source.open("rb") as file:
            return read_npz(file)
    here = source.seek(0, os.SEEK_END)
    try:
        size = unpacked_bytes(source)
        if size > max(here, ALWAYS_UNPACKED_BYTES):
            raise ValueError(f"its {here:,} bytes would unpack to {size:,}")
        source.seek(0)
        with np.load(source, allow_pickle=False) as members:
            return {name: members[name] for name in members.files}
    except (OSError, ValueError):
        raise
    except Exception as error:  # encrypted, packed in an unknown way, cut short, of shapes that fit nowhere
        raise ValueError(f"{type(error).__name__}: {error}") from None


MAX_SPEC_BYTES = 2**20


def read_toml(path: str | Path, example: str) -> dict[str, Any]:
    """Read a TOML document that a user wrote; messages say that the command ``example`` prints one."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a TOML file ({example})") from None
    if len(content) > MAX_SPEC_BYTES:
        raise InputError(f"{path} is larger than {MAX_SPEC_BYTES >> 10} KiB; a spec is a short TOML document")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte at offset {error.start}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML ({error}); correct it") from None


def to_toml(document: dict[str, Any]) -> str:
    """A document of values, and of tables of values, as TOML."""
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    lines = _lines({name: value for name, value in document.items() if name not in tables})
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: dict[str, Any]) -> list[str]:
    """What is None is left out, which TOML cannot say."""
    return [f"{_toml_key(key)} = {toml_value(value)}" for key, value in values.items() if value is not None]


def _toml_key(key: str) -> str:
    return f'"{key}"' if "." in key else key


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.translate(_ESCAPES)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return repr(value)


_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\"} | {i: f"\\u{i:04x}" for i in [*range(32), 127]}
