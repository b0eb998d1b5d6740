"""An emulated cell: network namespaces whose links are shaped to the plan's rates, with Flower's own nodes in them."""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when Flower is imported, which the modules here do
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.testbed.network": "why_not",
    "fedcell.testbed.runs": "CellRun Fault build_runs check_faults default_scale emulate parse_fault",
}
__getattr__ = lazy_names("fedcell.testbed", _NAMES)
__all__ = names_in(_NAMES)
