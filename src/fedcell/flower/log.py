"""What a run writes to Flower's log, in Flower's own form."""

import io
from collections.abc import Sequence

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedcell.flower.flwr_api import LOG
from fedcell.flower.record import ScheduledRound
from fedcell.flower.round import PlannedRound

_MOST_NAMES = 20


def log_plan(planned: PlannedRound) -> None:
    """Who was chosen out of how many, and how long the round is planned to take."""
    names = [device.name for device in planned.devices]
    known = planned.known[planned.plan.devices].all()
    LOG.info(
        "fedcell: scheduled %d of %d devices, %s: %s",
        *(len(names), len(planned.nodes)),
        f"planned {planned.plan.round_s:.4g} s" if known else "some of them of unknown times",
        listed(names),
    )


def log_round(done: ScheduledRound) -> None:
    """What the chosen devices were planned to take and took, and who is missing."""
    missing = [name for device, name in zip(done.devices, done.names, strict=True) if device in set(done.missing)]
    LOG.info(
        "\t├──> took %.4g s, planned %.4g s; clock %.6g s%s",
        *(done.round_s, done.planned_s, done.clock_s),
        f"; missing: {listed(missing)}" if missing else "",
    )
    took = ("-" if s is None else f"{s:.4g}" for s in done.finish_s)
    times = [f"{n} {p:.4g}/{t}" for n, p, t in zip(done.names, done.planned_finish_s, took, strict=True)]
    LOG.info("\t├──> planned/took in s: %s", listed(times) if times else "nobody was scheduled")


def log_metrics(metrics: MetricRecord | None, *, clients: bool = True) -> None:
    """The metrics of a round's training or evaluation, as Flower logs them."""
    if metrics is not None:
        LOG.info("\t└──> %s: %s", "Aggregated MetricRecord" if clients else "MetricRecord", metrics)


def log_result(result: Result, rounds: Sequence[ScheduledRound], seconds: float) -> None:
    """The end of a run: Flower's final results, and what the rounds took."""
    trained = [done for done in rounds if done.delivered]
    LOG.info("")
    LOG.info("Strategy execution finished in %.2fs", seconds)
    if trained:
        LOG.info(
            "fedcell: rounds trained: %d; clock %.6g s; a round took %.4g s on average (planned %.4g s), %.1f models",
            *(len(trained), rounds[-1].clock_s),
            *(sum(values) / len(trained) for values in zip(*((d.round_s, d.planned_s) for d in trained), strict=True)),
            sum(len(d.delivered) for d in trained) / len(trained),
        )
    LOG.info("")
    LOG.info("Final results:")
    LOG.info("")
    for line in io.StringIO(str(result)):
        LOG.info("\t%s", line.strip("\n"))
    LOG.info("")


def listed(words: Sequence[str]) -> str:
    """The words, or the first twenty of them and how many more there are."""
    more = len(words) - _MOST_NAMES
    return ", ".join(words[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
