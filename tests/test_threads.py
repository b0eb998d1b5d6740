"""Work on several threads: in order, with its failures, and Ctrl-C at any line ends it."""

import signal
import threading
from pathlib import Path

import pytest

from fedcell.threads import Interrupts, on_threads
from harness import LIMIT_S, python


def test_results_are_in_order_and_every_thread_begins() -> None:
    begun: list[int] = []
    barrier = threading.Barrier(2)

    def work(number: int) -> int:
        if number < 2:
            barrier.wait(LIMIT_S)  # so that there are two threads
        return number * number

    found = on_threads(work, range(20), 2, begin=lambda: begun.append(threading.get_ident()))
    assert found == [number * number for number in range(20)]
    assert len(set(begun)) == 2


def test_what_fails_is_raised_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())  # other tests of this process may have left some
    with pytest.raises(ZeroDivisionError):
        on_threads(lambda number: 1 / number, [2, 1, 0, 1], 2)
    assert set(threading.enumerate()) <= before


def test_elsewhere_than_in_the_main_thread_and_with_other_handlers_nothing_is_held() -> None:
    seen = []

    def handler(*_: object) -> None:
        seen.append("theirs")

    before = signal.signal(signal.SIGINT, handler)
    try:
        with Interrupts().held():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]
    thread = threading.Thread(target=lambda: seen.extend(on_threads(str, [1, 2], 2)))
    thread.start()
    thread.join(LIMIT_S)
    assert seen == ["theirs", "1", "2"]


def test_a_second_ctrl_c_is_raised_at_once() -> None:
    interrupts = Interrupts()
    said = []
    try:
        with interrupts.held():
            for press in ("once", "twice"):
                signal.raise_signal(signal.SIGINT)
                said.append(press)
    except KeyboardInterrupt:
        said.append("raised")
    assert said == ["once", "raised"]
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    interrupts.check()


AT_ANY_LINE = f"""
import faulthandler, sys, time
from itertools import count

sys.path.insert(0, {str(Path(__file__).parent)!r})
from ctrl_c import pressed_before
from fedcell.threads import on_threads

faulthandler.dump_traceback_later({LIMIT_S - 30}, exit=True)  # of a hang, where it is
for at in count(1, 5):
    with pressed_before(at, "fedcell/threads.py") as pressed:
        found = on_threads(lambda number: time.sleep(0.001 * number) or number, range(4), 2)
    if not pressed.yet:
        break
print(at, found)
"""


@pytest.mark.processes
def test_ctrl_c_at_any_line_ends_it() -> None:
    at, found = python(AT_ANY_LINE).split(" ", 1)
    assert int(at) > 60
    assert found == "[0, 1, 2, 3]\n"
