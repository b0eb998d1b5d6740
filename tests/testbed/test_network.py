"""The network: rates on the wire, cuts, and that nothing is left behind."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcell.errors import InputError
from fedcell.testbed import network as net
from fedcell.testbed.network import end, ended, inside, start
from fedcell.testbed.wire import HEADER_BYTES, Packet, Tap
from harness import LIMIT_S, Process, python, wait_until
from testbed.needs import TESTBED, namespaces, needs_network

PORT = 5001
OWNER = """
import os, sys, time
from pathlib import Path
from fedcell.testbed.network import network
from fedcell.testbed.network import start
with network(2) as links:
    inner = start(lambda: time.sleep(600), Path(os.devnull), links.device(0))
    print(links.prefix, inner, flush=True)
    time.sleep(600)
"""


@contextmanager
def receiver(links: net.Links) -> Iterator[socket.socket]:
    with inside(links.base), socket.socket() as listener:
        listener.bind((net.BASE_ADDRESS, PORT))
        listener.listen(8)
        listener.settimeout(20.0)
        yield listener


def send(size: int, device: int = 0) -> Callable[[], None]:
    def run() -> None:
        with socket.create_connection((net.BASE_ADDRESS, PORT), source_address=(net.address(device), 0)) as sender:
            sender.sendall(bytes(size))

    return run


def receive_all(listener: socket.socket) -> int:
    taken, _ = listener.accept()
    taken.settimeout(LIMIT_S)
    total = 0
    with taken:
        while part := taken.recv(1 << 16):
            total += len(part)
    return total


def transfer(links: net.Links, tap: Tap, tmp_path: Path, size: int) -> list[Packet]:
    began_s = time.time()
    with receiver(links) as listener:
        pid = start(send(size), tmp_path / "sender.log", links.device(0))
        try:
            assert receive_all(listener) == size
        finally:
            end(pid)
    return [packet for packet in tap.packets(began_s) if packet.up]


def rate(packets: list[Packet]) -> float:
    """Bits a second on the wire, headers included; the first packet finds the bucket full."""
    taken = sum(packet.bytes + HEADER_BYTES for packet in packets[1:])
    return 8 * taken / (packets[-1].time_s - packets[0].time_s)


@pytest.mark.links
@needs_network
def test_an_uplink_has_the_rate_that_was_set(tmp_path: Path) -> None:
    with net.network(2) as links:
        with inside(links.base):
            tap = Tap(2, PORT)
        for bits_per_s, size in ((1e6, 150_000), (20e6, 1_500_000), (2e6, 300_000)):
            links.set_rates({0: bits_per_s, 1: 1e9})

            def reaches_the_rate(bits_per_s: float = bits_per_s, size: int = size) -> bool:
                packets = transfer(links, tap, tmp_path, size)
                assert {packet.device for packet in packets} == {0}
                assert max(packet.bytes for packet in packets) + HEADER_BYTES == net.FRAME_BYTES
                assert rate(packets) < 1.02 * bits_per_s  # the link never lets more pass
                return rate(packets) > 0.9 * bits_per_s

            wait_until(reaches_the_rate, "a transfer that the busy machine itself does not slow down")


@pytest.mark.links
@needs_network
def test_a_rate_below_the_least_is_refused() -> None:
    with net.network(1) as links, pytest.raises(InputError, match="rate of device 0 is 0"):
        links.set_rates({0: 0.0})


@pytest.mark.links
@needs_network
def test_a_cut_link_carries_nothing_until_it_is_mended() -> None:
    with net.network(2) as links, receiver(links):

        def reaches(device: int) -> bool:
            with inside(links.device(device)), socket.socket() as probe:
                probe.settimeout(0.5)
                return probe.connect_ex((net.BASE_ADDRESS, PORT)) == 0

        wait_until(lambda: reaches(0), "the link to carry")
        links.cut(0)
        assert not reaches(0)
        wait_until(lambda: reaches(1), "the other link to carry")
        links.mend([0])
        wait_until(lambda: reaches(0), "the mended link to carry again")


@pytest.mark.links
@needs_network
def test_two_cells_of_one_process_do_not_meet() -> None:
    with net.network(1) as one, net.network(1) as other:
        assert one.prefix != other.prefix
        with receiver(one), inside(other.device(0)), socket.socket() as probe:
            probe.settimeout(0.5)
            assert probe.connect_ex((net.BASE_ADDRESS, PORT)) != 0
        assert len(namespaces(one.prefix)) == len(namespaces(other.prefix)) == 2


@pytest.mark.links
@needs_network
def test_leaving_the_block_ends_what_runs_inside(tmp_path: Path) -> None:
    made = []

    def stay() -> None:
        (tmp_path / "inside").touch()
        time.sleep(600)

    def leave_by_an_error() -> None:
        with net.network(1) as links:
            made.append((links, start(stay, tmp_path / "log", links.device(0))))
            wait_until((tmp_path / "inside").exists, "its start")  # or it might enter while the namespace is removed
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave_by_an_error()
    [(links, pid)] = made
    assert namespaces(links.prefix) == []
    wait_until(lambda: ended(pid) is not None, "its end")


@pytest.mark.links
@needs_network
def test_a_killed_owner_takes_its_processes_along_and_the_next_start_the_rest() -> None:
    def removed_by_us() -> bool:
        with Process(sys.executable, "-c", OWNER) as owner:
            told = owner.wait_for(lambda: owner.out if owner.out.endswith("\n") else "", "its first line")
            prefix, inner = told.split()
            assert prefix not in net.remove_leftovers()  # it lives
            assert len(namespaces(prefix)) == 3
            owner.kill()
            wait_until(lambda: not alive(int(inner)), "the end of what ran inside")
        removed = net.remove_leftovers()
        assert namespaces(prefix) == []
        return prefix in removed

    # Another emulated cell on this machine may begin, and remove them, before us.
    assert any(removed_by_us() for _ in range(3))


@pytest.mark.links
@needs_network
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with Process(*TESTBED, "--devices", "2", "--logs", "logs", cwd=tmp_path) as process:
        prefix = f"fedcell-{process.pid}-"
        process.wait_for((tmp_path / "logs" / "supernode-1.log").exists, "the second SuperNode")
        assert len(namespaces(prefix)) == 3
        process.popen.send_signal(number)
        done = process.finish()
        assert process.living() == []
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert namespaces(prefix) == []


@pytest.mark.parametrize("count", [0, 251])
@pytest.mark.links
@needs_network
def test_a_cell_has_1_to_250_devices(count: int) -> None:
    with pytest.raises(InputError, match=f"has {count} devices"), net.network(count):
        pass


def why_not_as(preparation: str) -> str:
    code = f"import os\nfrom fedcell.testbed import network\n{preparation}\nprint(network.why_not())"
    return python(code).strip()


@pytest.mark.links
@needs_network
def test_without_root_or_tools_the_reason_is_one_sentence() -> None:
    assert why_not_as("os.setuid(65534)") == (
        "the emulated cell needs root to create network namespaces; run it as root"
    )
    assert why_not_as("os.environ['PATH'] = '/nowhere'") == ("the emulated cell needs iproute2's ip; install iproute2")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_owner_of_a_name_is_told_by_pid_and_start_time() -> None:
    own = net._start_time(os.getpid())
    assert own is not None
    assert net._start_time(2**22 + 1) is None
