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

Processes inside the namespaces are forked from this one, so that nothing is imported twice: a start of Python with
Flower and the training engine takes seconds of processor time, a fork milliseconds. Every process ends with its parent,
also if that is killed.
"""

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fedcell.errors import InputError

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


APP, SERVICE = 1, 2
"""Real-time priorities, the least two, before all other work of the machine: what waits for a processor would be
measured as a slow link. What moves messages goes before what makes them."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start(function: Callable[[], object], log: Path, namespace: str | None = None, priority: int = APP) -> int:
    """Call the function in a new process, in a network namespace of its own or in the caller's.

    Call it from the main thread, for the new process ends with the thread that started it.

    Args:
        function: what the process does.
        log: file to which its output is appended.
        namespace: network namespace in which it runs; None for the caller's.
        priority: APP or SERVICE.

    Returns:
        Its process id.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    # Python loses a Ctrl-C that comes while it forks.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    pid = os.fork()
    if pid == 0:
        _be_child(function, log, namespace, priority, parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def _be_child(function: Callable[[], object], log: Path, namespace: str | None, priority: int, parent: int) -> NoReturn:
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)
        os.setpgid(0, 0)  # a Ctrl-C at the terminal is the owner's to handle
        for number in (*_ENDING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
        _redirect(log)
        if namespace is not None:
            enter(namespace)
        function()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # in any case: the caller's blocks are not this process's to leave


def _redirect(log: Path) -> None:
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    # Whatever the caller made of them (a test's capture, a progress bar's), the log is theirs now.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, 1, closefd=False) for n, mode in enumerate("rww"))


def enter(namespace: str) -> None:
    """Move this thread, and what it starts, into a network namespace."""
    with open(f"/run/netns/{namespace}") as file:
        _setns(file.fileno())


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move this thread into a network namespace for the block; sockets made inside stay there."""
    with open("/proc/thread-self/ns/net") as own:
        enter(namespace)
        try:
            yield
        finally:
            _setns(own.fileno())


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "network namespace")


def end(pid: int) -> None:
    """Kill a process that ``start`` returned, if it still runs, and forget it."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def ended(pid: int) -> int | None:
    """Return the exit status of a process that ``start`` returned, negative for a signal; None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1
    return os.waitstatus_to_exitcode(status) if done else None
