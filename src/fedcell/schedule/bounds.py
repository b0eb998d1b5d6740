"""Proposition 1: bounds on the mean round time of n randomly chosen devices, tight and as printed.

For identical devices with d samples, compute time a d + (d/mu) Exp(1) and independent channels,

    a d + d/(n mu) + n E[c]  <=  E[t*(S)]  <=  a d + (d/mu) H_n + n E[c],      H_n = 1 + 1/2 + ... + 1/n.

The paper prints the upper bound with a further factor n before d/mu. Its proof does not need it: from
sum c_i / (t* - t_max) >= 1 follows t* <= t_max + sum c_i, and the mean of the largest of n exponentials is H_n. The
printed bound holds too; it is looser.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell import defaults
from fedcell.errors import InputError
from fedcell.world import Cell
from fedcell.world import mean_upload_s as paper_mean_upload_s


@dataclass(frozen=True, eq=False)
class RoundTimeBounds:
    """The result of `round_time_bounds`: bounds on the mean round time in seconds, each of the shape of n.

    Attributes:
        lower_s: (...) the paper's lower bound.
        upper_s: (...) the upper bound that the proof gives.
        printed_upper_s: (...) the upper bound as the paper prints it, which is looser.

    Example:
        >>> import fedcell as fc
        >>> bounds = fc.round_time_bounds(10, mean_upload_s=0.1)
        >>> round(float(bounds.lower_s), 3), round(float(bounds.upper_s), 3), round(float(bounds.printed_upper_s), 3)
        (7.075, 9.197, 28.967)
    """

    lower_s: NDArray[np.float64]
    upper_s: NDArray[np.float64]
    printed_upper_s: NDArray[np.float64]


def round_time_bounds(
    n: ArrayLike,
    *,
    mean_upload_s: float | None = None,
    samples: float = defaults.SAMPLES,
    seconds_per_sample: float = defaults.SECONDS_PER_SAMPLE,
    samples_per_second: float = defaults.SAMPLES_PER_SECOND,
) -> RoundTimeBounds:
    """Bound the mean round time of n random devices under optimal bandwidth allocation (Proposition 1).

    For identical devices, with H_n = 1 + 1/2 + ... + 1/n:

        a d + d / (n mu) + n E[c]  <=  E[round time]  <=  a d + (d / mu) H_n + n E[c]

    Args:
        n: (...) number of scheduled devices, whole numbers of at least 1.
        mean_upload_s: E[c], the mean seconds to upload the model with the entire band, as `mean_upload_s` computes it
            for a cell; by default that of the paper's cell.
        samples: d, training samples of a device.
        seconds_per_sample: a, the minimum training time per sample, in seconds.
        samples_per_second: mu; the training time beyond the minimum has mean d / mu seconds.

    Returns:
        RoundTimeBounds: lower and upper bounds in seconds, each of the shape of n.

    Example:
        >>> import fedcell as fc
        >>> bounds = fc.round_time_bounds([1, 10], mean_upload_s=0.1)
        >>> bounds.lower_s.round(3).tolist(), bounds.upper_s.round(3).tolist()
        ([6.85, 7.075], [6.85, 9.197])
    """
    counts = np.asarray(n)
    if counts.size == 0 or counts.dtype.kind not in "iu" or counts.min() < 1:
        raise InputError(f"n is {n!r}; give whole numbers of devices of at least 1")
    if mean_upload_s is None:
        mean_upload_s = paper_mean_upload_s(Cell())
    settings = {"mean_upload_s": mean_upload_s, "samples": samples, "samples_per_second": samples_per_second}
    for name, value in settings.items():
        if not (np.isfinite(value) and value > 0.0):
            raise InputError(f"{name} is {value}; give a positive number")
    if not (np.isfinite(seconds_per_sample) and seconds_per_sample >= 0.0):
        raise InputError(f"seconds_per_sample is {seconds_per_sample}; give a number of at least 0")
    fixed, spread = seconds_per_sample * samples, samples / samples_per_second
    harmonic = np.cumsum(1.0 / np.arange(1, int(counts.max()) + 1))[counts - 1]
    upload = counts * mean_upload_s
    return RoundTimeBounds(
        lower_s=fixed + spread / counts + upload,
        upper_s=fixed + spread * harmonic + upload,
        printed_upper_s=fixed + counts * spread * harmonic + upload,
    )
