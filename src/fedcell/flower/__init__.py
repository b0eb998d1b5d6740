"""fedcell in Flower: ``Scheduled(strategy, policy)`` in the ServerApp, ``report_device(app, ...)`` in the ClientApp.

Needs the extra ``flower``: ``pip install "fedcell[flower]"``. Names are imported when first used: Flower starts a
process for every message to a node, and what a ClientApp needs must not wait for the scheduler.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedcell.errors import InputError

if find_spec("flwr") is None:
    raise InputError('fedcell.flower needs Flower; install it with: pip install "fedcell[flower]"')

if TYPE_CHECKING:
    from fedcell.flower.profile import profile_of
    from fedcell.flower.radio import CellRadio, DedicatedRadio, Device, Grant, Radio, SimulatedRadio
    from fedcell.flower.record import ScheduledRound
    from fedcell.flower.report import Report, report_device, timed
    from fedcell.flower.scheduled import Scheduled
    from fedcell.sim.knowledge import Look, Timing

_WHERE = {
    "fedcell.flower.profile": "profile_of",
    "fedcell.flower.radio": "CellRadio DedicatedRadio Device Grant Radio SimulatedRadio",
    "fedcell.flower.record": "ScheduledRound",
    "fedcell.flower.report": "Report report_device timed",
    "fedcell.flower.scheduled": "Scheduled",
    "fedcell.sim.knowledge": "Look Timing",
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'fedcell.flower' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CellRadio",
    "DedicatedRadio",
    "Device",
    "Grant",
    "Look",
    "Radio",
    "Report",
    "Scheduled",
    "ScheduledRound",
    "SimulatedRadio",
    "Timing",
    "profile_of",
    "report_device",
    "timed",
]
