from collections.abc import Sequence

import numpy as np

from fedcell.paper import diverse
from fedcell.paper.settings import Settings
from fedcell.runs.records import Rounds
from fedcell.sim.spec import Spec


def collect(specs: Sequence[Spec]) -> dict[str, Rounds]:
    """A run takes 100 s, 10 s more for each dB and 1 s more for each seed; greedy with 8 dB never gets there."""
    found = {}
    for spec in specs:
        error_db = spec.cell.csi_error_db
        clock_s = np.array(
            [50.0, 100.0 + 10.0 * error_db + spec.seed + 50.0 * (spec.slack is not None and error_db > 0)]
        )
        best = 0.5 if spec.policy == "greedy" and error_db == 8.0 else 0.81
        found[spec.key()] = Rounds(clock_s, clock_s, np.ones(2), np.array([0.3, best]))
    return found


def test_the_table_has_means_and_losses_paired_by_seed() -> None:
    output = diverse.make_csi(Settings(seeds=3), collect)
    times, losses, rounds = output.tables
    assert [row[:2] for row in times.rows] == [
        [who, slack] for who in ("Greedy", "Optimal", "Diverse") for slack in ("waits for all", "slack 2")
    ]
    # Student's t with 2 degrees of freedom: 4.303 x 1 / sqrt(3)
    assert times.rows[2][2:] == ["101 ± 2", "111 ± 2", "121 ± 2", "141 ± 2", "181 ± 2"]
    assert losses.rows[2][2:] == ["0", "+10 ± 0", "+20 ± 0", "+40 ± 0", "+80 ± 0"]
    assert losses.rows[3][2:] == ["0", "+60 ± 0", "+70 ± 0", "+90 ± 0", "+130 ± 0"]
    assert rounds.rows[2][2] == "2.0 x 75.5 s"
    assert times.rows[0][-1] == "900 ± 0 (0/3)"
    assert losses.rows[0][-1] == "+799 ± 2 (0/3)"


def test_runs_without_an_error_are_run_once_whatever_the_slack() -> None:
    specs = diverse.csi_specs(Settings())
    assert len({spec.key() for spec in specs.values()}) == len(diverse.CSI_POLICIES) * (
        1 + 2 * (len(diverse.ERRORS_DB) - 1)
    )
    assert {spec.budget_s for spec in specs.values()} == {900.0}
    assert {spec.target_accuracy for spec in specs.values()} == {0.8}
