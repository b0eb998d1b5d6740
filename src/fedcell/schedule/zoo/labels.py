"""Which labels the devices hold, as far as the server knows: for policies that balance them."""

import numpy as np

from fedcell.errors import InputError
from fedcell.schedule.view import RoundView
from fedcell.types import Floats


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
        >>> from fedcell.schedule.zoo.labels import counts_of_labels
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
