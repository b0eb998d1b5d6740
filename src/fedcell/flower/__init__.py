"""fedcell in Flower: ``Scheduled(strategy, policy)`` in the ServerApp, ``report_device(app, ...)`` in the ClientApp.

Needs the extra ``flower``: ``pip install "fedcell[flower]"``.
"""

from importlib.util import find_spec

from fedcell.errors import InputError

if find_spec("flwr") is None:
    raise InputError('fedcell.flower needs Flower; install it with: pip install "fedcell[flower]"')

from fedcell.flower.profile import profile_of
from fedcell.flower.radio import CellRadio, Device, Grant, Radio, SimulatedRadio
from fedcell.flower.report import Report, report_device, timed
from fedcell.flower.scheduled import Scheduled
from fedcell.flower.state import ScheduledRound
from fedcell.sim.knowledge import Look, Timing

__all__ = [
    "CellRadio",
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
