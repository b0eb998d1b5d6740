"""The paper's settings give the same records as ever, bit for bit, whatever fields are added around them.

The digests were made before there was anything else to set: on commit 1779ebd, with AVX-512. NumPy's logarithms and the
compiled training round by the width of the processor's vectors, so elsewhere clocks and accuracies have to be close.
"""

import hashlib

import numpy as np
import pytest

import fedcell as fc
from fedcell.runs.records import PLAN_COLUMNS, encode
from fedcell.sim.record import ROUND_COLUMNS

FOUND = set(np.show_config(mode="dicts")["SIMD Extensions"]["found"])
SAME_ARITHMETIC = bool(FOUND & {"X86_V4", "AVX512_SKX"})
RUNS = {
    "greedy": (
        "c666bb3edb1eb40e5ba271507ffa3d2244eafd841d0fa8c6b9766999991f74c1",
        "acb840eaf5b923a4ac9294c2d3faf9d5aece8f726874928dcbabe67dca756d79",
        "0x1.619f45e9a02c8p+5",
        [0.2076, 0.3681, 0.5824, 0.4123],
    ),
    "diverse": (
        "afde27404bc950ae03a47c8a17f41c75983bebaa5b836ebc32439c9ef158c151",
        "132d24cb45d220fb7ddc89382faecabb175a18aec8417a947aaab50038193129",
        "0x1.7796f33316a03p+5",
        [0.4187, 0.5014, 0.7235, 0.6853],
    ),
    "random:k=8": (
        "e51931bf0f04e8215ebc839b1f32f3cbed5dc33cf01e3556af6f083161319940",
        "84bafdcab69cd408b23466f31f9704b57f7cb86c6eeef2c979aecf7408f8c6ec",
        "0x1.ac26a5bb09184p+6",
        [0.3801, 0.5561, 0.4749, 0.5858],
    ),
}
"""Four rounds of Fig. 3's cell with seed 0: the SHA-256 of their rows, the run's key, the clock and the accuracies."""
LATER_COLUMNS = (
    "joules",
    "plan_joules",
    "plan_starts_s",
    "plan_epochs",
    "plan_bits",
    "epochs",
    "bits",
    "sent_bytes",
    "evaluated",
)


def digest(records: list[fc.RoundRecord]) -> str:
    total = hashlib.sha256()
    for record in records:
        row = zip((*ROUND_COLUMNS, *PLAN_COLUMNS), encode(record), strict=True)
        for value in (value for name, value in row if name not in LATER_COLUMNS):
            total.update(value if isinstance(value, bytes) else repr(value).encode())
    return total.hexdigest()


@pytest.mark.parametrize("policy", RUNS)
def test_the_papers_runs_have_the_bits_that_they_had(policy: str) -> None:
    rows, key, clock_s, accuracies = RUNS[policy]
    spec = fc.Spec(policy=policy, rounds=4, task=fc.TaskSpec(partition="labels:2,order=numbered"))
    assert spec.key() == key  # stored runs are found again
    records = list(fc.simulate(spec))
    assert records[-1].clock_s == pytest.approx(float.fromhex(clock_s), rel=1e-12)
    assert [record.accuracy for record in records] == pytest.approx(accuracies, abs=0.01)
    if SAME_ARITHMETIC:
        assert digest(records) == rows
