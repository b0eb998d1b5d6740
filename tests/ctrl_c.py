"""Ctrl-C before a chosen line, for tests in processes of their own."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

PYTHONS = (
    "concurrent/futures/_base.py",
    "concurrent/futures/thread.py",
    f"python{sys.version_info.major}.{sys.version_info.minor}/threading.py",
)
"""Where Python's own threads and executors take their locks."""


@dataclass
class Pressed:
    """Whether it was pressed: the line may never have come."""

    yet: bool = False


@contextmanager
def pressed_before(at: int, *files: str, function: str = "") -> Iterator[Pressed]:
    """Press Ctrl-C before the at-th line of PYTHONS and these files that the main thread runs within.

    The block must end by that KeyboardInterrupt, which is caught here, if and only if it came; and with no thread left.

    Args:
        at: from 1; 0 for never.
        files: the ends of their paths.
        function: count the lines of functions of this name only.
    """
    places = tuple(os.path.join(*file.split("/")) for file in (*PYTHONS, *files))
    pressed, left, ended = Pressed(), at, False

    def trace(frame: FrameType, what: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(places):
            return None
        if what == "line" and function in ("", frame.f_code.co_name):
            left -= 1
            if left == 0:
                pressed.yet = True
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        yield pressed
        ended = True
    except KeyboardInterrupt:
        assert pressed.yet, "nobody pressed it"
    finally:
        sys.settrace(None)
    assert ended != pressed.yet, "Ctrl-C was lost"
    assert threading.enumerate() == [threading.main_thread()]
