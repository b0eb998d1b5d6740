"""One round planned for a table of devices."""

from fedcell import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "fedcell.plan.device_table": "DeviceColumns DeviceTable PROFILE parse_columns parse_devices read_devices",
        "fedcell.plan.plans": "TablePlan",
    },
)

__all__ = [
    "PROFILE",
    "DeviceColumns",
    "DeviceTable",
    "TablePlan",
    "parse_columns",
    "parse_devices",
    "plans",
    "read_devices",
]
