"""Conversions to SI units; no other module converts units.

Inside fedcell every quantity is in SI units and its name says so: ``_s``, ``_hz``, ``_m``, ``_bits``, ``_w_per_hz``.
Each function takes a number or an array and returns the same.

Example:
    >>> from fedcell import units
    >>> units.km(1.4), units.db_to_ratio(20.0), round(units.dbm_per_mhz(7.0) * 1e9, 3)
    (1400.0, 100.0, 5.012)
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", float, NDArray[np.float64])

MIN_S, MAX_S = 1e-300, 1e300
"""Times are accepted within these bounds: beyond them sums and shares would leave double precision."""


def db_to_ratio(db: F) -> F:
    """Decibels as a linear ratio: 10^(dB/10)."""
    ratio: F = 10.0 ** (db / 10.0)
    return ratio


def ratio_to_db(ratio: F) -> F:
    """A linear ratio as decibels: 10 log10(ratio)."""
    db: F = 10.0 * np.log10(ratio)
    return db


def dbm(value: F) -> F:
    """A power in dBm, as W (0 dBm is 1 mW)."""
    return db_to_ratio(value) * 1e-3


def dbm_per_mhz(dbm: F) -> F:
    """A power density in dBm/MHz, as W/Hz (0 dBm/MHz is 1e-9 W/Hz)."""
    return db_to_ratio(dbm) * 1e-9


def km(value: F) -> F:
    """Kilometres as metres."""
    return value * 1e3
