"""One round of federated learning, the same in a simulation and over real clients: see, ask, decide, judge, learn.

Nothing is imported lazily here: whoever drives a round needs all of it.
"""

from fedcell.protocol.estimates import MIN_SECONDS
from fedcell.protocol.knowledge import Knowledge
from fedcell.protocol.outcome import Observed, Outcome, deadlines
from fedcell.protocol.round import (
    Answers,
    Collect,
    Collected,
    RoundInputs,
    RoundResult,
    Send,
    answer_links,
    play_round,
    samples_visited,
)
from fedcell.protocol.signals import SIGNALS, Signal, read_signals, uses_signal

__all__ = [
    "MIN_SECONDS",
    "SIGNALS",
    "Answers",
    "Collect",
    "Collected",
    "Knowledge",
    "Observed",
    "Outcome",
    "RoundInputs",
    "RoundResult",
    "Send",
    "Signal",
    "answer_links",
    "deadlines",
    "play_round",
    "read_signals",
    "samples_visited",
    "uses_signal",
]
