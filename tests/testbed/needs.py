"""Whether the machine can emulate a cell; tests that need one are skipped with the reason otherwise."""

import subprocess

import pytest

from fedcell.testbed.network import why_not

REASON = why_not()
needs_network = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def namespaces(prefix: str = "fedcell-") -> list[str]:
    """The namespaces that are there and begin so."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[0] for line in listed.splitlines() if line.startswith(prefix))
