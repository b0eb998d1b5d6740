"""What this machine offers."""

import os

WORKER_NUMBER = "FEDCELL_WORKER"
"""The environment variable that numbers the worker processes of a runner, from 0."""


def cores() -> int:
    """How many cores this process may run on; all of the machine's where the system cannot say (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """How much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
