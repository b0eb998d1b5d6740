"""The patches of Flower: for one version only, and what they hang on is still there."""

import inspect
import os
import time

import pytest

pytest.importorskip("flwr")

from flwr.supercore.superexec import run_superexec as superexec_loop
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supernode import start_client_internal as node_loop

from fedcell.errors import InputError
from fedcell.testbed import flower_patches
from fedcell.testbed.flower_patches import Bell, quick_supernode, require_flower


def test_another_version_of_flower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_flower()
    monkeypatch.setattr(flower_patches, "version", lambda _: "1.42.0")
    with pytest.raises(InputError, match=r"Flower is 1.42.0, but the testbed works with 1.41.x only"):
        require_flower()


def test_flower_still_has_what_is_replaced() -> None:
    pauses = inspect.getsource(node_loop)
    assert "time.sleep(3)" in pauses
    assert "time.sleep(0.5)" in pauses
    assert "time.sleep(" in inspect.getsource(superexec_loop)
    assert "subprocess.Popen(" in inspect.getsource(subprocess_executor)


def test_a_supernode_pauses_as_told_and_rings(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert pauses[2:] == [flower_patches.REPLY_POLL_S]
        bell.wait(60.0)  # returns at once: it was rung
    finally:
        bell.close()


def test_a_bell_is_heard_once_for_one_wait() -> None:
    bell = Bell()
    try:
        bell.ring()
        bell.ring()
        bell.wait(60.0)
        with pytest.raises(BlockingIOError):
            os.read(bell._hear, 1)
    finally:
        bell.close()
