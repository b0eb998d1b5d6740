"""What imports Flower here. Its patches: for one version only, and what they hang on is still there."""

import inspect
import os
import time
from importlib.util import find_spec

import pytest

from fedcell.errors import InputError

# Found, not imported: every worker collects this file, and Flower takes seconds.
pytestmark = pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed")


def test_another_version_of_flower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcell.testbed import flower_patches
    from fedcell.testbed.flower_patches import require_flower

    require_flower()
    monkeypatch.setattr(flower_patches, "version", lambda _: "1.42.0")
    with pytest.raises(InputError, match=r"Flower is 1.42.0, but the testbed works with 1.41.x only"):
        require_flower()


def test_flower_still_has_what_is_replaced() -> None:
    from flwr.supercore.superexec import run_superexec as superexec_loop
    from flwr.supercore.superexec.executor import subprocess_executor
    from flwr.supernode import start_client_internal as node_loop

    pauses = inspect.getsource(node_loop)
    assert "time.sleep(3)" in pauses
    assert "time.sleep(0.5)" in pauses
    assert "time.sleep(" in inspect.getsource(superexec_loop)
    assert "subprocess.Popen(" in inspect.getsource(subprocess_executor)


def test_a_supernode_pauses_as_told_and_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supernode import start_client_internal as node_loop

    from fedcell.testbed.flower_patches import REPLY_POLL_S, Bell, quick_supernode

    pauses: list[float] = []
    monkeypatch.setitem(vars(node_loop), "time", time)  # put back afterwards
    monkeypatch.setattr(time, "sleep", pauses.append)
    bell = Bell()
    try:
        quick_supernode(bell, 0.25)
        clock = vars(node_loop)["time"]
        assert clock.monotonic() <= time.monotonic()
        clock.sleep(3)
        clock.sleep(7)
        assert pauses == [0.25, 7]
        clock.sleep(0.5)
        assert pauses[2:] == [REPLY_POLL_S]
        bell.wait(60.0)  # returns at once: it was rung
    finally:
        bell.close()


def test_a_bell_is_heard_once_for_one_wait() -> None:
    from fedcell.testbed.flower_patches import Bell

    bell = Bell()
    try:
        bell.ring()
        bell.ring()
        bell.wait(60.0)
        with pytest.raises(BlockingIOError):
            os.read(bell._hear, 1)
    finally:
        bell.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower's command line
def test_a_kill_in_several_runs_is_refused_by_the_library_too() -> None:
    from fedcell.testbed.runs import Fault, build_runs, emulate

    with pytest.raises(InputError, match="a killed device is missing in the next run"):
        next(emulate(build_runs(seeds=2), faults=[Fault("kill", 1, 1)]))
