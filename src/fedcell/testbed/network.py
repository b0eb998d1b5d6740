"""The cell's network: namespaces for the base station and the devices, joined by veth pairs and a bridge.

    fedcell-PID-START-N-bs                     fedcell-PID-START-N-0, -1, ...
    bridge "cell", 10.77.0.1  <-- veth "d0" -- "radio", 10.77.1.1

All interfaces lie inside the namespaces, so runs at the same time never see each other. The uplink is shaped on the
device's egress by a token bucket (tc tbf); the downlink is not shaped. Frames are cut to the MTU before the shaper
(gso_max_segs 1), as on a real link, so that the bucket counts every frame's headers, and a connection may have only two
frames waiting for it (tcp_limit_output_bytes), as a modem's driver sees to: so connections of a device take turns, and
a small request need not wait behind a whole model.

The names carry the owner's process id and start time (N tells its cells apart): a later start removes what an owner
that was killed has left.
"""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedcell.errors import InputError
from fedcell.testbed.process import inside

BASE_ADDRESS = "10.77.0.1"
MAX_DEVICES = 250
FRAME_BYTES = 1514
"""A full Ethernet frame: 1,500 bytes of IP and 14 of header. The shaper counts these, as the wire does here."""
BUCKET_BYTES = 1600
"""Little more than a frame: a full bucket passes at once, before the rate holds."""
QUEUE_BYTES = 1_000_000
WAITING_BYTES = 4096
"""What a TCP connection may have in the queue, by the kernel's count: two frames with their bookkeeping."""
CONTROL_BITS_PER_S = 64_000.0
"""What a device that is not scheduled keeps for Flower's polls and heartbeats, as LTE has a control channel beside the
shared one. A poll is one frame of about 1,000 bytes; in 64 kbit/s it passes within TCP's least time-out of 200 ms."""
OPEN_BITS_PER_S = 1e9

_NAMESPACES = Path("/run/netns")
_NAME = re.compile(r"(fedcell-(\d+)-(\d+)-\d+)-(bs|\d+)")
_numbers = itertools.count()


@dataclass(frozen=True)
class Links:
    """The links of a cell, by the names of its namespaces; usable from any process of this machine.

    Attributes:
        prefix: of the namespaces' names.
        count: number of devices.
    """

    prefix: str
    count: int

    @property
    def base(self) -> str:
        """The name of the base station's namespace."""
        return f"{self.prefix}-bs"

    def device(self, device: int) -> str:
        """Return the name of a device's namespace."""
        return f"{self.prefix}-{device}"

    def set_rates(self, bits_per_s: Mapping[int, float]) -> None:
        """Shape the devices' uplinks to these rates in bit/s; queued frames are kept."""
        commands = []
        for device, rate in bits_per_s.items():
            if not rate >= 8.0:
                raise InputError(f"the rate of device {device} is {rate} bit/s; give at least 8")
            shaper = f"tbf rate {round(rate)}bit burst {BUCKET_BYTES} limit {QUEUE_BYTES}"
            commands.append(["tc", "-n", self.device(device), "qdisc", "replace", "dev", "radio", "root"])
            commands[-1] += shaper.split()
        _run_all(commands)

    def kill(self, device: int) -> None:
        """Kill a device: its link goes down (else its kernel would still send what waits), and its processes end."""
        self.cut(device)
        _end_processes(self.device(device))

    def cut(self, device: int) -> None:
        """Take a device's link down: nothing passes either way."""
        _run_all([["ip", "-n", self.base, "link", "set", f"d{device}", "down"]])

    def mend(self, devices: Iterable[int]) -> None:
        """Bring these devices' links up again."""
        _run_all([["ip", "-n", self.base, "link", "set", f"d{device}", "up"] for device in devices])


def address(device: int) -> str:
    """Return a device's IP address."""
    return f"10.77.1.{device + 1}"


@contextmanager
def network(count: int) -> Iterator[Links]:
    """Create the cell's network; it is removed, with every process inside, when the block is left for any reason."""
    reason = why_not()
    if reason is not None:
        raise InputError(reason)
    if not 1 <= count <= MAX_DEVICES:
        raise InputError(f"the emulated cell has {count} devices; give 1 to {MAX_DEVICES}")
    remove_leftovers()
    links = Links(_new_prefix(), count)
    try:
        _build(links)
        yield links
    finally:
        _remove([links.prefix])


def why_not() -> str | None:
    """Return why no cell can be emulated here, in one sentence; None if it can."""
    if not hasattr(os, "geteuid") or not os.path.isdir("/proc/self/ns"):
        return "the emulated cell needs Linux's network namespaces; run it on Linux"
    if os.geteuid() != 0:
        return "the emulated cell needs root to create network namespaces; run it as root"
    for tool in ("ip", "tc"):
        try:
            subprocess.run([tool, "-V"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return f"the emulated cell needs iproute2's {tool}; install iproute2"
    return _why_no_link()


def _why_no_link() -> str | None:
    """Try what the network is made of, in a namespace of its own: containers and kernels may lack any of it."""
    links = Links(_new_prefix(), 1)
    try:
        _build(links)
    except InputError as error:
        return str(error)
    finally:
        _remove([links.prefix])
    return None


def remove_leftovers() -> list[str]:
    """Remove the namespaces, and the processes inside, whose owner no longer lives; return their prefixes."""
    owners = {(m[1], int(m[2]), int(m[3])) for m in map(_NAME.fullmatch, _names()) if m}
    dead = sorted(prefix for prefix, pid, started in owners if _start_time(pid) != started)
    _remove(dead)
    return dead


def _build(links: Links) -> None:
    devices = range(links.count)
    _batch([], [f"netns add {name}" for name in (links.base, *map(links.device, devices))])
    base = ["link set lo up", "link add cell type bridge", f"addr add {BASE_ADDRESS}/16 dev cell", "link set cell up"]
    for device in devices:
        base.append(f"link add d{device} type veth peer name radio netns {links.device(device)}")
        base.append(f"link set d{device} master cell up")
    _batch(["-n", links.base], base)
    for device in devices:
        own = ["link set lo up", f"addr add {address(device)}/16 dev radio", "link set dev radio up gso_max_segs 1"]
        _batch(["-n", links.device(device)], own)
        with inside(links.device(device)):
            Path("/proc/sys/net/ipv4/tcp_limit_output_bytes").write_text(str(WAITING_BYTES))
    links.set_rates(dict.fromkeys(devices, OPEN_BITS_PER_S))


def _names() -> list[str]:
    try:
        return sorted(os.listdir(_NAMESPACES))
    except FileNotFoundError:
        return []


def _remove(prefixes: Sequence[str]) -> None:
    """Remove the namespaces of these prefixes after ending what runs in them; none may be there."""
    names = [name for name in _names() if (m := _NAME.fullmatch(name)) and m[1] in prefixes]
    for _ in range(50):  # a process may start another one meanwhile
        if sum(_end_processes(name) for name in names) == 0:
            break
        time.sleep(0.02)
    for name in names:
        # One by one: another start may be removing the same.
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _end_processes(name: str) -> int:
    """Kill the processes in a namespace; return how many there were."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    others = [int(pid) for pid in listed.stdout.split() if int(pid) != os.getpid()]
    for pid in others:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(others)


def _new_prefix() -> str:
    return f"fedcell-{os.getpid()}-{_start_time(os.getpid())}-{next(_numbers)}"


def _start_time(pid: int) -> int | None:
    """Return when the process started, in the kernel's ticks; None if there is none."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])


def _batch(options: Sequence[str], lines: Sequence[str]) -> None:
    done = subprocess.run(
        ["ip", *options, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(f"the cell's network cannot be created: ip says {_first_line(done.stderr)!r}")


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run the commands side by side (20 take 30 ms) and wait for all."""
    running = [subprocess.Popen(c, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for c in commands]
    faults = [process.communicate()[1] for process in running]
    for process, fault, command in zip(running, faults, commands, strict=True):
        if process.returncode:
            raise InputError(f"the cell's network cannot be configured: {command[0]} says {_first_line(fault)!r}")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "nothing"
