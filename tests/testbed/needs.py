"""Whether the machine can emulate a cell; tests that need one are skipped with the reason otherwise."""

import sys

import pytest

from fedcell.testbed.network import why_not
from harness import run

TESTBED = (sys.executable, "-m", "fedcell", "testbed")
"""Without warnings as errors: Flower's own imports warn."""
REASON = why_not()
needs_network = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def namespaces(prefix: str = "fedcell-") -> list[str]:
    """The namespaces that are there and begin so."""
    listed = run("ip", "netns", "list").stdout
    return sorted(line.split()[0] for line in listed.splitlines() if line.startswith(prefix))
