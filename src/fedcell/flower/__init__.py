"""fedcell in Flower: ``Scheduled(strategy, policy)`` in the ServerApp, ``report_device(app, ...)`` in the ClientApp.

Needs the extra ``flower``: ``pip install "fedcell[flower]"``. Names are imported when first used: Flower starts a
process for every message to a node, and what a ClientApp needs must not wait for the scheduler.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedcell import lazy_names
from fedcell.errors import InputError

if find_spec("flwr") is None:
    raise InputError('fedcell.flower needs Flower; install it with: pip install "fedcell[flower]"')

if TYPE_CHECKING:
    from fedcell.flower.client import (
        Report,
        answer_loss,
        compressed,
        epochs_of,
        report_device,
        timed,
        upload_when_asked,
    )
    from fedcell.flower.radio import CellRadio, DedicatedRadio, Device, Grant, Radio, SimulatedRadio, require_links
    from fedcell.flower.record import ScheduledRound
    from fedcell.flower.scheduled import Scheduled
    from fedcell.flower.state import Run, load_run
    from fedcell.learn.profile import profile_of
    from fedcell.schedule.plan import Links, Timing

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        "fedcell.flower",
        {
            "fedcell.flower.client": "Report answer_loss compressed epochs_of report_device timed upload_when_asked",
            "fedcell.learn.profile": "profile_of",
            "fedcell.flower.radio": "CellRadio DedicatedRadio Device Grant Radio SimulatedRadio require_links",
            "fedcell.flower.record": "ScheduledRound",
            "fedcell.flower.scheduled": "Scheduled",
            "fedcell.flower.state": "Run load_run",
            "fedcell.schedule.plan": "Links Timing",
        },
        {"Look": "Links"},
    )


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CellRadio",
    "DedicatedRadio",
    "Device",
    "Grant",
    "Links",
    "Radio",
    "Report",
    "Run",
    "Scheduled",
    "ScheduledRound",
    "SimulatedRadio",
    "Timing",
    "answer_loss",
    "compressed",
    "epochs_of",
    "load_run",
    "profile_of",
    "report_device",
    "require_links",
    "timed",
    "upload_when_asked",
]
