"""How many rounds a model needs: N(n) = beta (theta + 1/n), eq. (2) of the paper, its fit, and Proposition 1.

n is the number of devices that train in each round, beta > 0 scales the number of rounds, and theta is the part that
adding devices cannot reduce. (P1) multiplies N(n) by the time of a round, so beta drops out of every decision.

Proposition 1 bounds the mean round time of n randomly chosen devices. For identical devices with d samples, compute
time a d + (d/mu) Exp(1) and independent channels,

    a d + d/(n mu) + n E[c]  <=  E[t*(S)]  <=  a d + (d/mu) H_n + n E[c],      H_n = 1 + 1/2 + ... + 1/n.

The paper prints the upper bound with a further factor n before d/mu. Its proof does not need it: from
sum c_i / (t* - t_max) >= 1 follows t* <= t_max + sum c_i, and the mean of the largest of n exponentials is H_n. The
printed bound holds too; it is looser.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from fedcell import defaults
from fedcell.distributions import student_t_quantile
from fedcell.errors import InputError

Interval = tuple[float, float]


class RoundsModel(NamedTuple):
    """The rounds model N(n) = beta (theta + 1/n): how many rounds training needs with n devices per round.

    Attributes:
        beta: positive, in rounds; it scales the number of rounds.
        theta: dimensionless, above -1; the part of the rounds that adding devices cannot reduce. A large theta (iid
            data) favours short rounds with few devices, a small one (non-iid data) favours more devices.

    Example:
        >>> import fedcell as fc
        >>> fc.TABLE_I["iid"]
        RoundsModel(beta=27.773, theta=0.941)
    """

    beta: float
    theta: float


TABLE_I = {
    "L=1": RoundsModel(123.127, -0.0448),
    "L=2": RoundsModel(103.783, -0.0367),
    "L=5": RoundsModel(89.154, 0.00934),
    "L=8": RoundsModel(63.919, 0.139),
    "iid": RoundsModel(27.773, 0.941),
}
"""The paper's Table I: its regression for L digits per device and for iid data."""


def largest_set(theta: float) -> float:
    """Return the largest n for which the rounds model holds, that is, theta + 1/n > 0; infinity for theta >= 0.

    The paper's fits for L=1 and L=2 have theta < 0; for n >= -1/theta they predict zero or fewer rounds, which is
    meaningless.
    """
    if theta >= 0.0 or math.isinf(-1.0 / theta):
        return math.inf
    n = math.ceil(-1.0 / theta)
    while n > 0 and theta + 1.0 / n <= 0.0:
        n -= 1
    return float(n)


def objective(n: int, round_s: float, theta: float) -> float:
    """Return the objective of (P1) divided by beta: (theta + 1/n) T. The smaller it is, the sooner training ends.

    The total training time is N(n) T = beta (theta + 1/n) T, and beta is the same for every schedule.

    Args:
        n: number of scheduled devices, at least 1.
        round_s: T, the round time in seconds.
        theta: of the rounds model N(n) = beta (theta + 1/n); theta + 1/n must be positive.

    Returns:
        Seconds; multiply by beta for the expected total training time.

    Example:
        >>> import fedcell as fc
        >>> fc.objective(n=4, round_s=10.0, theta=0.25)
        5.0
    """
    if not math.isfinite(theta):
        raise InputError(f"theta is {theta}; give a finite number above -1")
    if theta + 1.0 / n <= 0.0:
        raise InputError(
            f"theta is {theta}: the rounds model beta (theta + 1/n) predicts no rounds for n = {n}; "
            f"give a theta above {-1.0 / n:g}"
        )
    return (theta + 1.0 / n) * round_s


def rounds_needed(n: ArrayLike, beta: float, theta: float) -> NDArray[np.float64]:
    """Return N(n) = beta (theta + 1/n), the number of rounds that training needs with n devices per round.

    Args:
        n: (...) devices per round, at least 1.
        beta: scale, in rounds, positive.
        theta: dimensionless; theta + 1/n must be positive for every n.

    Returns:
        (...) rounds, not rounded to whole numbers.

    Example:
        >>> import fedcell as fc
        >>> fc.rounds_needed([1, 5, 20], beta=27.773, theta=0.941).round(1).tolist()
        [53.9, 31.7, 27.5]
    """
    counts = np.asarray(n, dtype=np.float64)
    if not (math.isfinite(beta) and beta > 0.0):
        raise InputError(f"beta is {beta}; give a positive number")
    if counts.size == 0 or not (np.isfinite(counts).all() and counts.min() >= 1.0):
        raise InputError(f"n is {n!r}; give numbers of devices of at least 1")
    objective(int(counts.max()), 1.0, theta)
    rounds: NDArray[np.float64] = beta * (theta + 1.0 / counts)
    return rounds


class RoundsFit(RoundsModel):
    """The result of `fit_rounds`: a rounds model that unpacks to (beta, theta), with confidence intervals.

    Attributes:
        beta: in rounds, positive.
        theta: dimensionless.
        beta_interval: (low, high) confidence interval of beta.
        theta_interval: (low, high) confidence interval of theta, by Fieller's theorem (theta is a ratio of two
            estimates); (-inf, inf) if the data does not bound it.
        residual_rounds: root mean square of the residuals in rounds, given their degrees of freedom.

    Example:
        >>> import fedcell as fc
        >>> fit = fc.fit_rounds(n=[2, 5, 10, 20], rounds=[52, 20, 9, 4])
        >>> [round(bound, 4) for bound in fit.theta_interval]
        [-0.0195, -0.008]
        >>> fc.rounds_needed(8, *fit).round(2).tolist()
        11.89
    """

    beta_interval: Interval
    theta_interval: Interval
    residual_rounds: float

    def __new__(
        cls,
        beta: float,
        theta: float,
        beta_interval: Interval,
        theta_interval: Interval,
        residual_rounds: float,
    ) -> "RoundsFit":
        """Make the pair, with the intervals as attributes."""
        self = super().__new__(cls, beta, theta)
        self.beta_interval, self.theta_interval, self.residual_rounds = beta_interval, theta_interval, residual_rounds
        return self

    # A named tuple copies, pickles and replaces by its two items alone; these three take the rest along.
    @override
    def _asdict(self) -> dict[str, Any]:
        return {"beta": self.beta, "theta": self.theta} | vars(self)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self._asdict().values())

    @override
    def _replace(self, **changes: Any) -> "RoundsFit":
        return RoundsFit(**(self._asdict() | changes))

    def __repr__(self) -> str:
        return f"RoundsFit({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"


def fit_rounds(n: ArrayLike, rounds: ArrayLike, *, confidence: float = 0.95) -> RoundsFit:
    """Fit the rounds model N(n) = beta (theta + 1/n) to observations, by least squares.

    With x = 1/n the model is a line with slope beta and intercept beta theta, so this is ordinary linear regression.

    Args:
        n: (K,) devices per round, at least 1, with at least two different values.
        rounds: (K,) rounds that were needed to reach the target accuracy.
        confidence: confidence level of the intervals, between 0 and 1.

    Returns:
        RoundsFit: unpacks to ``(beta, theta)``; its intervals are infinite for two observations.

    Example:
        >>> import fedcell as fc
        >>> beta, theta = fc.fit_rounds(n=[2, 5, 10, 20], rounds=[52, 20, 9, 4])
        >>> round(beta, 2), round(theta, 4)
        (106.97, -0.0139)
    """
    counts, needed = _observations(n, rounds)
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1")
    if (needed == needed[0]).all():
        raise InputError(
            f"every number of devices needed {needed[0]:g} round{'s' * bool(needed[0] != 1)}, which does not show "
            "how many rounds more devices save; set a higher target accuracy"
        )
    x = 1.0 / counts
    spread = float(((x - x.mean()) ** 2).sum())
    beta = float(((x - x.mean()) * needed).sum()) / spread
    intercept = float(needed.mean() - beta * x.mean())
    if beta <= 0.0:
        raise InputError(
            f"the fit gives beta = {beta:.4g}: more devices needed more rounds, which contradicts the model; "
            "check the observations or average over more trials"
        )
    freedom = counts.size - 2
    if freedom == 0:
        return RoundsFit(beta, intercept / beta, (-math.inf, math.inf), (-math.inf, math.inf), 0.0)
    variance = float(((needed - intercept - beta * x) ** 2).sum()) / freedom
    quantile = student_t_quantile(0.5 + confidence / 2.0, freedom)
    half = quantile * math.sqrt(variance / spread)
    theta_interval = _fieller(intercept, beta, x, spread, variance * quantile**2)
    return RoundsFit(beta, intercept / beta, (beta - half, beta + half), theta_interval, math.sqrt(variance))


def _observations(n: ArrayLike, rounds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    counts, needed = np.asarray(n, dtype=np.float64), np.asarray(rounds, dtype=np.float64)
    if counts.ndim != 1 or counts.shape != needed.shape:
        raise InputError(
            f"n has shape {counts.shape} and rounds has shape {needed.shape}; give two vectors of one length"
        )
    for name, values, least in (("n", counts, 1.0), ("rounds", needed, 0.0)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= least)))
        if bad.size:
            raise InputError(f"{name}[{bad[0]}] is {values[bad[0]]}; give finite numbers of at least {least:g}")
    if np.unique(counts).size < 2:
        raise InputError("fitting beta and theta needs at least two different values of n; give more observations")
    return counts, needed


def _fieller(intercept: float, slope: float, x: NDArray[np.float64], spread: float, scale: float) -> Interval:
    """Fieller's interval of intercept/slope: all r for which intercept - r slope is within the quantile of 0."""
    # (intercept - r slope)^2 <= scale (v_aa - 2 r v_ab + r^2 v_bb), a quadratic inequality in r.
    v_bb = 1.0 / spread
    v_ab = -float(x.mean()) / spread
    v_aa = 1.0 / x.size + float(x.mean()) ** 2 / spread
    a = slope**2 - scale * v_bb
    b = -2.0 * (intercept * slope - scale * v_ab)
    c = intercept**2 - scale * v_aa
    if a <= 0.0:  # the slope itself may be 0: no bounded interval has the stated confidence
        return (-math.inf, math.inf)
    root = math.sqrt(max(b * b - 4.0 * a * c, 0.0))
    return ((-b - root) / (2.0 * a), (-b + root) / (2.0 * a))


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
        from fedcell.world import Cell
        from fedcell.world import mean_upload_s as mean_upload_s_of

        mean_upload_s = mean_upload_s_of(Cell())
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
