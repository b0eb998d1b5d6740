"""Where a run stands between two rounds."""

import io
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedcell.learn.aggregator import AggregatorState, LateModels
from fedcell.learn.compression import Residuals
from fedcell.protocol import Knowledge
from fedcell.types import Floats, Vector


class Score(NamedTuple):
    """How good the model was when it was last evaluated.

    Attributes:
        accuracy: a fraction of the test set; NaN if it was never evaluated.
        loss: its mean loss there, in nats.
        round: after how many rounds that was; 0 for never.
        clock_s: and at which simulated time.
    """

    accuracy: float = math.nan
    loss: float = math.nan
    round: int = 0
    clock_s: float = 0.0


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands between two rounds: all that its further rounds depend on, for every draw is keyed by round.

    Attributes:
        round: rounds done.
        clock_s: the simulated time.
        model: (P,) the global model.
        knowledge: what the server has learnt of the devices.
        spent_j: (M,) the joules that each device has spent.
        reached: whether the target accuracy was reached.
        aggregation: what the aggregator keeps.
        residuals: what devices have not sent yet, with error feedback.
        score: of the last evaluation.
    """

    round: int
    clock_s: float
    model: Vector
    knowledge: Knowledge
    spent_j: Floats
    reached: bool = False
    aggregation: AggregatorState = field(default_factory=AggregatorState)
    residuals: Residuals = field(default_factory=dict)
    score: Score = field(default_factory=Score)

    @property
    def late(self) -> LateModels:
        """Models that were under way when the last round ended."""
        return self.aggregation.late

    @property
    def reports_j(self) -> float:
        """What the next round's record has to bear of the devices' reports, in joules: all of it if it is the first."""
        return float(self.spent_j.sum()) if self.round == 0 else 0.0

    def to_bytes(self) -> bytes:
        """The state as an .npz file's content; nothing is pickled."""
        content = io.BytesIO()
        numbers = np.array([self.round, self.reached, self.aggregation.rounds], dtype=np.int64)
        arrays = {"numbers": numbers, "clock_s": np.float64(self.clock_s), "model": self.model, "spent_j": self.spent_j}
        arrays |= self.aggregation.to_arrays() | self.knowledge.to_arrays()
        if self.score.round:
            arrays["score"] = np.array(self.score, np.float64)
        if self.residuals:
            devices, rows = zip(*sorted(self.residuals.items()), strict=True)
            arrays |= {"residual_devices": np.array(devices, np.int64), "residuals": np.stack(rows)}
        np.savez(content, **arrays)  # type: ignore[arg-type]
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "State":
        """The inverse of to_bytes; a ValueError if it is damaged."""
        from fedcell.files import read_npz

        try:
            file = read_npz(io.BytesIO(content))
            number, reached, means = file["numbers"].tolist()
            model = file["model"].astype(np.float32, copy=False)
            knowledge, spent_j = Knowledge.from_arrays(file), file["spent_j"]
            aggregation = AggregatorState.from_arrays(file, means)
            residuals: Residuals = {}
            if "residuals" in file:
                rows = file["residuals"].astype(np.float32, copy=False)
                residuals = dict(zip(file["residual_devices"].tolist(), rows, strict=True))
            clock_s, score = float(file["clock_s"]), Score()
            if "score" in file:  # version 0.2 evaluated after every round
                accuracy, loss, evaluated, evaluated_s = file["score"].tolist()
                score = Score(accuracy, loss, int(evaluated), evaluated_s)
            return cls(number, clock_s, model, knowledge, spent_j, bool(reached), aggregation, residuals, score)
        except Exception as error:  # whatever somebody has written there
            raise ValueError(f"not the state of a run: {error}") from None
