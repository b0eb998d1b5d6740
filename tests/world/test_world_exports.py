"""What fedcell.world exports, and the names of version 0.2."""

import pytest

import fedcell.world
from fedcell.world.availability import AvailabilitySnapshot
from fedcell.world.device import draw_compute_s


def test_exported_names_exist() -> None:
    assert all(getattr(fedcell.world, name) is not None for name in fedcell.world.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Sell'"):
        _ = fedcell.world.Sell  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("Attendance", "AvailabilitySnapshot", AvailabilitySnapshot),
        ("parse_rate", r"RATES\.parse", fedcell.world.RATES.parse),
        ("draw_compute_s", r"fedcell\.world\.device\.draw_compute_s", draw_compute_s),
    ],
)
def test_names_of_0_2_are_warned_of(old: str, new: str, value: object) -> None:
    vars(fedcell.world).pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"fedcell.world.{old} is called {new}; write that"):
        assert getattr(fedcell.world, old) == value
