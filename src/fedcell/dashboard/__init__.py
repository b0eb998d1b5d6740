"""The cell in a browser: the server behind `fedcell serve`, and the page in static/."""

from fedcell import lazy_names

__getattr__ = lazy_names(
    "fedcell.dashboard",
    {
        "fedcell.dashboard.app": "build_server",
        "fedcell.dashboard.state": "ServerSettings",
    },
)

__all__ = [
    "ServerSettings",
    "build_server",
]
