"""The cell in a browser: the server behind `fedcell serve`, and the page in static/."""

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.dashboard.app": "build_server",
    "fedcell.dashboard.state": "ServerSettings",
}
__getattr__ = lazy_names("fedcell.dashboard", _NAMES)
__all__ = names_in(_NAMES)
