"""Who is told that something is compiled, here and in worker processes."""

import numba
import pytest

from fedcell.compiling import when_compiling
from fedcell.runs.processes import Processes


def compile_something() -> int:
    return int(numba.njit(lambda x: x + 1)(1))


def test_whoever_wants_to_know_is_told_once() -> None:
    told: list[str] = []

    def tell() -> None:
        told.append("here")

    when_compiling(tell)
    when_compiling(tell)
    assert compile_something() == compile_something() == 2
    assert told == ["here"]


@pytest.mark.processes
def test_a_worker_tells_its_driver_before_it_answers() -> None:
    told: list[str] = []
    with Processes(1) as processes:
        assert processes.submit(int, "3").result() == 3
        when_compiling(lambda: told.append("a worker"))
        assert told == []
        assert [processes.submit(compile_something).result() for _ in range(2)] == [2, 2]
        assert told == ["a worker"]
        assert processes.submit(int, "3").result() == 3
