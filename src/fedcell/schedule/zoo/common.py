"""What several policies share: times with equal shares, weighted draws and label counts."""

import numpy as np

from fedcell.errors import InputError
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices


def equal_share_finish_s(view: RoundView, k: int, upload_s: Floats | None = None) -> Floats:
    """Return how long each device would take for a round with a k-th of the band.

    The papers measure a device's duration. Where the band is shared so that all devices of a round finish together,
    what was measured says nothing about a single one; this does.

    Args:
        view: what the server knows this round, for M devices.
        k: devices per round.
        upload_s: (M,) upload times with the entire band, if not those of the view.

    Returns:
        (M,) seconds.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.schedule.zoo.common import equal_share_finish_s
        >>> equal_share_finish_s(fc.RoundView(upload_s=[1.0, 2.0], compute_s=[3.0, 0.5]), k=2).tolist()
        [5.0, 4.5]
    """
    share = 1.0 if view.law.separable else 1.0 / k
    uploads: Floats = view.upload_s if upload_s is None else upload_s
    seconds: Floats = view.compute_s + view.law.upload_s(uploads, np.full(len(view), share))
    return seconds


def weighted_order(weights: Floats, view: RoundView, rng: np.random.Generator) -> Indices:
    """Return all devices in the order in which they are drawn without replacement, each with odds by its weight.

    The largest of log w + Gumbel noise is a draw by the weights w, the second largest one from the rest, and so on.

    Args:
        weights: (M,) at least 0; devices of weight 0 come last, in random order.
        view: of the M devices; the noise goes by its order, so permuting the devices permutes the draw.
        rng: the source of the noise.

    Returns:
        (M,) device indices.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.schedule.zoo.common import weighted_order
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 3.0], compute_s=[1.0, 1.0, 1.0])
        >>> weighted_order(np.array([0.0, 1.0, 1e9]), view, np.random.default_rng(0)).tolist()
        [2, 1, 0]
    """
    noise = np.empty(len(view))
    noise[view.order()] = rng.gumbel(size=len(view))
    nothing = weights <= 0.0
    return np.lexsort((-noise - np.log(np.where(nothing, 1.0, weights)), nothing))


def counts_of_labels(view: RoundView, who: str) -> Floats | None:
    """Return how many samples of each label every device holds.

    They are the view's label_counts; without these, its profiles, taken as shares of the device's samples. A device of
    which nothing is known counts as one with the mean of the known ones, that is, as a balanced one.

    Args:
        view: what the server knows this round.
        who: the policy that asks, for messages.

    Returns:
        (M, labels) counts, or None if nothing is known of any device.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.schedule.zoo.common import counts_of_labels
        >>> view = fc.RoundView([1.0, 2.0], [3.0, 3.0], profiles=[[0.5, 0.5], [1.0, 0.0]], samples=[10, 4])
        >>> counts_of_labels(view, "fed_cbs").tolist()
        [[5.0, 5.0], [4.0, 0.0]]
    """
    name = "profiles" if view.label_counts is None else "label_counts"
    given = getattr(view, name)
    if given is None:
        return None
    counts: Floats = np.array(given, dtype=np.float64)
    if (counts < 0.0).any():
        bad = int(np.flatnonzero((counts < 0.0).any(axis=1))[0])
        raise InputError(
            f"{name}[{bad}] has a negative entry, but {who} needs label counts or shares; "
            'give label_counts, or profiles of labels (profiles = "labels")'
        )
    sizes = counts.sum(axis=1)
    known = sizes > 0.0  # NaN is not
    if not known.any():
        return None
    if view.label_counts is None:
        counts[known] /= sizes[known, np.newaxis]
        if view.samples is not None:
            counts *= np.asarray(view.samples, dtype=np.float64)[:, np.newaxis]
    counts[~known] = counts[known].mean(axis=0)
    return counts
