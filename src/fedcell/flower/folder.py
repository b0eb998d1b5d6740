"""The state directory before a run: there, with room, and nobody else's."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedcell.errors import InputError
from fedcell.flower.flwr_api import LOG


@contextmanager
def held(folder: Path | None, least_bytes: int = 0) -> Iterator[None]:
    """Inside this context the directory exists, can be written to, and is this server's alone.

    The operating system releases the lock when the process ends, however it ends.

    Args:
        folder: the directory, created if need be; None for no state.
        least_bytes: how much must fit on the disk, at least.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise _cannot_write(folder, error) from None
    with lock:
        _lock(folder, lock)
        try:
            _try_writing(folder, lock, least_bytes)
        except OSError as error:
            raise _cannot_write(folder, error) from None
        yield


def _lock(folder: Path, lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read(20).strip() or "unknown"
        raise InputError(
            f"{folder} is in use by another server (process {owner}); stop that one or give another directory"
        ) from None
    except OSError as error:  # some network file systems have no locks
        LOG.warning("fedcell: cannot lock %s (%s); make sure that no other server uses it", folder, error.strerror)


def _try_writing(folder: Path, lock: IO[str], least_bytes: int) -> None:
    """Write as much as a round will need, and remove it again."""
    path = folder / "test.tmp"
    try:
        with path.open("wb") as file:
            file.write(b"fedcell")
            file.flush()
            os.posix_fallocate(file.fileno(), 0, max(1, least_bytes))
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            path.unlink()
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def _cannot_write(folder: Path, error: OSError) -> InputError:
    reason = "it is not a directory" if folder.exists() and not folder.is_dir() else error.strerror
    return InputError(f"cannot write to {folder}: {reason}; give Scheduled(state=...) a directory with enough space")
