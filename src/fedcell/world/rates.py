"""From SNR to rate: Shannon's formula, or the modulation and coding schemes (MCS) of 5G NR.

The tables are 3GPP TS 38.214's 5.1.3.1-1 (up to 64QAM) and 5.1.3.1-2 (up to 256QAM), which section 6.1.4.1 prescribes
for the uplink as well. The standard does not say which SNR a scheme needs; the thresholds here are where the block
error rate is 10 % in the link-level results of 5G-LENA, the NR module of ns-3 (Lagen et al., "New Radio Physical Layer
Abstraction for System-Level Simulations of 5G Networks", ICC 2020; its files nr-eesm-t1 and -t2), linearly between
their points, for the longest code block that they have (about 8,192 bits with LDPC base graph 1, and 3,752 with base
graph 2, which code rates up to 1/4 use; 928 for MCS 28 of the first table, 5,248 for MCS 27 of the second).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import ClassVar, TypeAlias

import numpy as np

from fedcell import settings, units
from fedcell.errors import require_number
from fedcell.types import Floats

Table: TypeAlias = tuple[tuple[int, float, float], ...]
# (bits per symbol, code rate x 1024, SNR in dB for a block error rate of 10 %), MCS 0, 1, ...
TABLE_1: Table = (
    *((2, 120, -0.97), (2, 157, -0.45), (2, 193, 0.38), (2, 251, 1.21), (2, 308, 1.96), (2, 379, 2.77)),
    *((2, 449, 3.48), (2, 526, 4.12), (2, 602, 4.84), (2, 679, 5.62)),
    *((4, 340, 6.31), (4, 378, 7.01), (4, 434, 7.73), (4, 490, 8.52), (4, 553, 9.38), (4, 616, 10.28)),
    *((4, 658, 10.83), (6, 438, 11.64), (6, 466, 12.24), (6, 517, 13.18), (6, 567, 14.03), (6, 616, 14.89)),
    *((6, 666, 15.81), (6, 719, 16.67), (6, 772, 17.90), (6, 822, 18.78), (6, 873, 19.76), (6, 910, 20.77)),
    (6, 948, 22.65),
)
TABLE_2: Table = (
    *((2, 120, -0.97), (2, 193, 0.38), (2, 308, 1.96), (2, 449, 3.48), (2, 602, 4.84)),
    *((4, 378, 7.01), (4, 434, 7.73), (4, 490, 8.52), (4, 553, 9.38), (4, 616, 10.28), (4, 658, 10.83)),
    *((6, 466, 12.24), (6, 517, 13.18), (6, 567, 14.03), (6, 616, 14.89), (6, 666, 15.81), (6, 719, 16.67)),
    *((6, 772, 17.90), (6, 822, 18.78), (6, 873, 19.76)),
    *((8, 682.5, 20.84), (8, 711, 21.48), (8, 754, 22.44), (8, 797, 23.39), (8, 841, 24.38), (8, 885, 25.31)),
    *((8, 916.5, 26.59), (8, 948, 27.14)),
)


def spectral_efficiency(snr: Floats) -> Floats:
    """Spectral efficiency log2(1 + snr), accurate for very small ratios too.

    Args:
        snr: (M,) linear signal-to-noise ratios.

    Returns:
        (M,) in bit/s/Hz.

    Example:
        >>> import numpy as np
        >>> from fedcell.world.rates import spectral_efficiency
        >>> spectral_efficiency(np.array([1.0, 15.0])).round(3).tolist()
        [1.0, 4.0]
    """
    return np.log1p(snr) / log(2)


@dataclass(frozen=True)
class Shannon:
    """Shannon's formula, as in the paper: log2(1 + snr / gap).

    Attributes:
        gap_db: by how many dB a real link falls short of it, at least 0.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> [fc.Shannon(gap_db).efficiency(np.array([15.0])).round(2).tolist() for gap_db in (0.0, 3.0)]
        [[4.0], [3.09]]
    """

    gap_db: float = 0.0

    def __post_init__(self) -> None:
        require_number("gap_db", self.gap_db, least=0)

    def efficiency(self, snr: Floats) -> Floats:
        """(M,) bit/s/Hz at linear signal-to-noise ratios (M,)."""
        return spectral_efficiency(snr / units.db_to_ratio(self.gap_db) if self.gap_db else snr)


@dataclass(frozen=True)
class Mcs64:
    """The best modulation and coding scheme of table 5.1.3.1-1 (QPSK to 64QAM) that fails for at most 10 % of blocks.

    Its rate is bits per symbol x code rate; retransmissions, reference signals and guard bands are not counted. Below
    the lowest threshold there is no rate at all, so the device is not there for the round.

    Attributes:
        gap_db: margin in dB that is added to every threshold, at least 0.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> snr = 10 ** (np.array([-2.0, 0.0, 10.0, 30.0]) / 10)
        >>> fc.Mcs64().efficiency(snr).round(3).tolist()
        [0.0, 0.307, 2.16, 5.555]
    """

    gap_db: float = 0.0
    table: ClassVar[Table] = TABLE_1

    def __post_init__(self) -> None:
        require_number("gap_db", self.gap_db, least=0)

    def efficiency(self, snr: Floats) -> Floats:
        """(M,) bit/s/Hz at linear signal-to-noise ratios (M,); 0 below the lowest scheme."""
        threshold_db, best = _steps(self.table)
        with np.errstate(divide="ignore"):
            snr_db = units.ratio_to_db(np.asarray(snr, np.float64))
        return best[np.searchsorted(threshold_db + self.gap_db, snr_db, side="right")]


@dataclass(frozen=True)
class Mcs256(Mcs64):
    """The same with table 5.1.3.1-2 (QPSK to 256QAM), which the network may choose for the uplink.

    Attributes:
        gap_db: margin in dB that is added to every threshold, at least 0.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> fc.Mcs256().efficiency(10 ** (np.array([-2.0, 30.0]) / 10)).round(3).tolist()
        [0.0, 7.406]
    """

    table: ClassVar[Table] = TABLE_2


@lru_cache(maxsize=4)
def _steps(table: Table) -> tuple[Floats, Floats]:
    """(S,) thresholds in dB, rising, and (S + 1,) the best efficiency below, between and above them."""
    threshold_db = np.array([row[2] for row in table])
    efficiency = np.array([bits * rate / 1024 for bits, rate, _ in table])
    # MCS 17 of the first table carries a little less than MCS 16, and nobody would choose it.
    return threshold_db, np.concatenate(([0.0], np.maximum.accumulate(efficiency)))


Rate = Shannon | Mcs64
"""Any law from SNR to rate."""

RATES = settings.Registry[Rate](
    "rate",
    {
        "shannon": "fedcell.world.rates:Shannon",
        "mcs64": "fedcell.world.rates:Mcs64",
        "mcs256": "fedcell.world.rates:Mcs256",
    },
)
"""Laws from SNR to rate by name."""
