"""One round planned for a table of devices."""

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.plan.device_table": "DeviceColumns DeviceTable PROFILE parse_columns parse_devices read_devices",
    "fedcell.plan.plans": "TablePlan plans",
}
__getattr__ = lazy_names("fedcell.plan", _NAMES)
__all__ = names_in(_NAMES)
