"""How labels are dealt, with arrays: the slow twin of `fedcell.learn.partition`'s."""

from collections import deque
from itertools import pairwise

import numpy as np

from fedcell.learn.partition import Counts, Mask, Proportions


def fill_up(amounts: Counts, wishes: Proportions, held: Mask, wanted: Counts, supply: Counts) -> None:
    """Raise the amounts, in place, as far as the devices' sizes, labels and the supply allow: a maximum flow.

    A device that lacks samples takes what is left of its labels, first of the one that is furthest below the
    device's wish. If nothing is left, another holder of one of them gives up some and takes of another of its
    own labels instead, and so on: such chains are the augmenting paths of the flow. A giver keeps at least
    half of what it started with.
    """
    left = supply - amounts.sum(axis=0)
    keep = (amounts + 1) // 2
    queue = deque(int(device) for device in np.flatnonzero(amounts.sum(axis=1) < wanted))
    while queue:
        device = queue.popleft()
        chain = _chain(device, wishes[device] - amounts[device], amounts - keep, held, left)
        if not chain:
            continue
        gifts = [(giver, label) for (_, label), (giver, _) in pairwise(chain)]
        source = chain[-1][1]
        lacking = int(wanted[device] - amounts[device].sum())
        step = 1 + int(wanted[device]) // 200  # in turns and little by little, so that all fare alike
        spare = (int(amounts[gift] - keep[gift]) for gift in gifts)
        moved = min(step, lacking, int(left[source]), *spare)
        for gift in gifts:
            amounts[gift] -= moved
        for taken in chain:
            amounts[taken] += moved
        left[source] -= moved
        if moved < lacking:
            queue.append(device)


def _chain(
    device: int,
    unmet: Proportions,
    spare: Counts,
    held: Mask,
    left: Counts,
) -> list[tuple[int, int]]:
    """The shortest chain of (who takes, which label) from a device to a label with samples left, if any."""
    labels = np.flatnonzero(held[device])
    front = [int(label) for label in labels[np.argsort(-unmet[labels], kind="stable")]]
    reached = dict.fromkeys(front, (device, -1))  # label -> who takes it, and the label given up for it
    while front and not (left[front] > 0).any():
        behind, front = front, []
        for label in behind:
            givers = np.flatnonzero(spare[:, label] > 0)
            givers = givers[np.argsort(-spare[givers, label], kind="stable")]
            for other in np.flatnonzero(held[givers].any(axis=0)).tolist():
                if other not in reached:
                    reached[other] = (int(givers[np.argmax(held[givers, other])]), label)
                    front.append(other)
    label = next((label for label in front if left[label] > 0), -1)
    chain = []
    while label >= 0:
        taker, given_up = reached[label]
        chain.append((taker, label))
        label = given_up
    return chain[::-1]
