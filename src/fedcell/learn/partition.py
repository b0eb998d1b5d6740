"""Partitions of a data set: which device holds which samples, iid or not, in equal or unequal amounts.

A partition is named by a short string, the same in Python, on the command line and in TOML::

    iid                each device has a random sample of all data
    labels:2           two labels per device, each label on equally many devices (balanced)
    labels:2,free      two labels per device, drawn independently: some labels are then rare or missing
    labels:2,order=numbered   balanced as version 0.2.0 dealt them, see below
    dirichlet:0.5      each device has its own mixture of labels, drawn from Dirichlet(0.5, ..., 0.5)
    natural            each device has the samples of one owner, such as a writer of FEMNIST; the data has the owners

The parameters can also be named: ``labels:per_device=2,mode=free`` (or ``L=2``), ``dirichlet:alpha=0.5``. A second
string says how many samples a device has: ``equal`` (the default, N // devices each), ``lognormal:0.5`` (the standard
deviation of the logarithm), ``zipf:1`` (the exponent); or a list of sizes.

**Device numbers say nothing about the data.** Balanced labels are dealt to one device after the other, each taking
those that have been taken least, so with two of ten labels devices 0 to 4, 5 to 9, ... would hold all ten. So the
devices are shuffled afterwards, with a random stream of their own. Version 0.2.0 did not shuffle them: its partition is
``order=numbered``.

No sample is on two devices, and the partition depends only on the random generator that is passed in.

**When a label runs short.** With ``labels:L`` a device has samples of its L labels and no others, so the demand for a
label can exceed its samples: MNIST has 5,421 fives, and with ``free`` eight of twenty devices may want 1,500 each. The
devices with that label then share it by size and take more of their other labels instead; if those have run out too,
other devices make room, but none gives up more than half of an even share. So a size is the most that a device gets.
With the paper's 20 devices and 60,000 digits, ``iid``, ``dirichlet`` and nearly every draw of ``labels:2`` and up give
3,000 samples each; ``labels:1`` gives 2,710 to 3,000; with ``labels:2,free`` some devices have as few as 1,500, and
some samples of rarely drawn labels are not used.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcell import settings
from fedcell.errors import InputError, require_number, require_whole

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Proportions = NDArray[np.float64]


@dataclass(frozen=True)
class Iid:
    """Each device holds a random sample of everything."""

    name: ClassVar[str] = "iid"


@dataclass(frozen=True)
class Labels:
    """Each device holds samples of so many labels.

    Attributes:
        per_device: L, the number of labels per device.
        mode: ``balanced``, every label is held equally often; ``free``, each device draws its own.
        order: of the devices to which balanced labels are dealt: ``random``, or ``numbered``, as in version 0.2.0,
            where consecutive devices complement each other.
    """

    name: ClassVar[str] = "labels"
    per_device: int
    mode: Literal["balanced", "free"] = "balanced"
    order: Literal["random", "numbered"] = "random"

    def __post_init__(self) -> None:
        require_whole("per_device", self.per_device, least=1)


@dataclass(frozen=True)
class Dirichlet:
    """Each device mixes the labels by its own draw from Dirichlet(alpha, ..., alpha); the smaller, the more uneven."""

    name: ClassVar[str] = "dirichlet"
    alpha: float

    def __post_init__(self) -> None:
        require_number("alpha", self.alpha, above=0)


@dataclass(frozen=True)
class Natural:
    """Each device holds the samples of one owner; which owners take part is drawn if there are more than devices."""

    name: ClassVar[str] = "natural"


@dataclass(frozen=True)
class Equal:
    """All devices hold equally many samples."""

    name: ClassVar[str] = "equal"


@dataclass(frozen=True)
class Lognormal:
    """Log-normal sizes; sigma is the standard deviation of their logarithm."""

    name: ClassVar[str] = "lognormal"
    sigma: float

    def __post_init__(self) -> None:
        require_number("sigma", self.sigma, above=0)


@dataclass(frozen=True)
class Zipf:
    """The k-th largest size is proportional to k^-exponent."""

    name: ClassVar[str] = "zipf"
    exponent: float

    def __post_init__(self) -> None:
        require_number("exponent", self.exponent, above=0)


T = TypeVar("T")
Kind = Iid | Labels | Dirichlet | Natural
Sizes = Equal | Lognormal | Zipf
KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Iid, Labels, Dirichlet, Natural)}
SIZES: dict[str, type[Sizes]] = {kind.name: kind for kind in (Equal, Lognormal, Zipf)}


def parse_kind(text: str) -> Kind:
    """Parse ``iid``, ``labels:2``, ``labels:per_device=2,mode=free``, ``dirichlet:0.5`` or ``natural``."""
    return _parse("partition", text, KINDS, aliases={"L": "per_device"})


def parse_sizes(text: str) -> Sizes:
    """Parse ``equal``, ``lognormal:0.5`` or ``zipf:1``."""
    return _parse("sizes", text, SIZES)


def _parse(what: str, line: str, table: Mapping[str, type[T]], **forms: Any) -> T:
    """Parse a line like settings.parse; all values may stand without a key."""
    name, text = settings.split(what, line)
    kind = settings.choose(what, name, table)
    return settings.build(kind, what, name, text, positional=[f.name for f in settings.settable(kind)], **forms)


def partition(
    labels: NDArray[Any],
    devices: int,
    kind: str,
    rng: np.random.Generator,
    sizes: str | Sequence[int] = "equal",
    owners: NDArray[np.int64] | None = None,
) -> list[NDArray[np.int64]]:
    """Split the samples among the devices.

    Args:
        labels: (N,), the label of each sample, nonnegative integers.
        devices: M, the number of devices.
        kind: ``iid``, ``labels:L``, ``dirichlet:alpha`` or ``natural``; see the module's docstring.
        rng: random generator of the partition, such as ``stream(seed, "partition")``.
        sizes: ``equal``, ``lognormal:sigma``, ``zipf:exponent``, or M sizes; not for ``natural``.
        owners: (N,), the owner of each sample, numbered from 0; for ``natural``.

    Returns:
        M sorted arrays of sample indices, disjoint, none empty.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.partition import partition
        >>> labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
        >>> parts = partition(labels, 3, "labels:1", np.random.default_rng(0))
        >>> [labels[part].tolist() for part in parts]
        [[1, 1, 1], [2, 2, 2], [0, 0, 0]]
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size or labels.min() < 0:
        raise InputError(f"labels are {labels.dtype} of shape {labels.shape}; give (N,) integers from 0 on")
    whole = isinstance(devices, int | np.integer) and not isinstance(devices, bool)
    if not whole or not 1 <= devices <= len(labels):
        raise InputError(f"devices is {devices!r}; give 1 to {len(labels)}, at least a sample for each")
    parsed = parse_kind(kind)
    if isinstance(parsed, Natural):
        return _of_owners(owners, int(devices), sizes, rng)
    wanted = _wanted_sizes(len(labels), int(devices), sizes, rng)
    if isinstance(parsed, Iid):
        return [np.sort(part) for part in _cut(rng.permutation(len(labels)), wanted)]
    present, supply = np.unique(labels, return_counts=True)
    if isinstance(parsed, Labels):
        held = _held_labels(len(wanted), len(present), parsed, rng)
        proportions = np.where(held, wanted[:, None] / parsed.per_device, 0.0)
        amounts = _share_labels(held, wanted, supply, present)
    else:
        held = np.ones((len(wanted), len(present)), bool)
        mixtures = rng.dirichlet(np.full(len(present), parsed.alpha), len(wanted))
        proportions = _mix_labels(mixtures, wanted, supply)
        amounts = np.floor(proportions).astype(np.int64)
    _fill_up(amounts, proportions, held, wanted, supply)
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in present]
    pieces = [_cut(pool, amounts[:, label]) for label, pool in enumerate(pools)]
    return [np.sort(np.concatenate(of_device)) for of_device in zip(*pieces, strict=True)]


def _of_owners(
    owners: NDArray[np.int64] | None, devices: int, sizes: str | Sequence[int], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    if owners is None:
        raise InputError(
            "the partition is 'natural', but the data does not say whose a sample is; use another partition"
        )
    if sizes != "equal":
        raise InputError(f"sizes are {sizes!r}, but with the partition 'natural' the data has them; leave sizes out")
    counts = np.bincount(owners)
    if devices > len(counts):
        raise InputError(
            f"the partition is 'natural' with {devices} devices, but the data has {len(counts)} owners; give fewer"
        )
    chosen = np.sort(rng.permutation(len(counts))[:devices])
    by_owner = np.split(np.argsort(owners, kind="stable"), np.cumsum(counts)[:-1])
    return [by_owner[owner] for owner in chosen]


def label_counts(labels: NDArray[Any], parts: Sequence[NDArray[np.int64]], classes: int) -> Counts:
    """Count the samples of each label on each device.

    Args:
        labels: (N,) the label of each sample.
        parts: M arrays of sample indices, as `partition` returns them.
        classes: number of labels.

    Returns:
        (M, classes) counts.
    """
    return np.array([np.bincount(labels[part], minlength=classes) for part in parts], np.int64)


def _wanted_sizes(
    samples: int,
    devices: int,
    sizes: str | Sequence[int],
    rng: np.random.Generator,
) -> Counts:
    if isinstance(sizes, str):
        kind = parse_sizes(sizes)
        if isinstance(kind, Equal):
            return np.full(devices, samples // devices)
        if isinstance(kind, Lognormal):
            logarithms = rng.normal(0.0, kind.sigma, devices)
        else:
            logarithms = rng.permutation(-kind.exponent * np.log(np.arange(1, devices + 1)))
        weights = np.exp(logarithms - logarithms.max())
        return 1 + _rounded((samples - devices) * (weights / weights.sum()))
    given = np.asarray(sizes)
    if given.shape != (devices,) or given.dtype.kind not in "iu" or given.min() < 1:
        raise InputError(f"sizes are {list(sizes)}; give {devices} positive integers, one for each device")
    if given.sum() > samples:
        raise InputError(f"sizes add up to {given.sum()}, more than the {samples} samples; give smaller ones")
    return given.astype(np.int64)


def _rounded(values: Proportions) -> Counts:
    """Round to integers of the same sum: down, and the largest remainders up."""
    down = np.floor(values)
    up = np.argsort(down - values, kind="stable")[: round(float(values.sum() - down.sum()))]
    down[up] += 1
    return down.astype(np.int64)


def _held_labels(devices: int, classes: int, kind: Labels, rng: np.random.Generator) -> Mask:
    """Draw which labels each device holds: (M, C), L in each row."""
    if kind.per_device > classes:
        raise InputError(f"labels per device is {kind.per_device}, but the data has {classes}; give fewer")
    held = np.zeros((devices, classes), bool)
    # How many more holders each label gets. A device that takes the labels with the most room left, ties at
    # random, never leaves a later one without L labels to take (as in Havel and Hakimi's theorem).
    room = np.full(classes, devices * kind.per_device // classes)
    room[rng.permutation(classes)[: devices * kind.per_device % classes]] += 1
    for row in held:
        chance = rng.random(classes)
        order = np.lexsort((chance, -room)) if kind.mode == "balanced" else np.argsort(chance)
        row[order[: kind.per_device]] = True
        room -= row
    if kind.mode == "balanced" and kind.order == "random":
        held = rng.spawn(1)[0].permutation(held)
    return held


def _share_labels(held: Mask, wanted: Counts, supply: Counts, present: NDArray[Any]) -> Counts:
    """Return even amounts to start from: a label's holders share it by size, each at least one, at most wanted / L."""
    per_device = int(held[0].sum())
    holders = held.sum(axis=0)
    scarce = np.flatnonzero(holders > supply)
    if scarce.size:
        label = scarce[0]
        raise InputError(
            f"label {present[label]} has {supply[label]} samples for {holders[label]} devices; "
            "give fewer devices, fewer labels per device or more samples"
        )
    if wanted.min() < per_device:
        raise InputError(
            f"device {wanted.argmin()} needs {per_device} labels but has only {wanted.min()} samples; "
            "give fewer devices, fewer labels per device or more even sizes"
        )
    weights = np.where(held, wanted[:, None], 0)
    shares = (supply - holders) * (weights / np.maximum(weights.sum(axis=0), 1))
    return np.where(held, np.minimum(1 + shares.astype(np.int64), wanted[:, None] // per_device), 0)


def _mix_labels(mixtures: Proportions, wanted: Counts, supply: Counts) -> Proportions:
    """Return amounts close to each device's mixture, but within the supply.

    The devices' proportions rarely add up to the supply. Scaling rows to the sizes and columns to the supply in
    turn (iterative proportional fitting) treats all devices alike, where dealing to one after the other
    would leave to the last ones what the others did not take.
    """
    amounts = np.maximum(mixtures, 1e-9)
    for _ in range(200):
        amounts *= (wanted / amounts.sum(axis=1))[:, None]
        amounts *= np.minimum(1.0, supply / amounts.sum(axis=0))
    return amounts * (1 - 1e-12)  # rounding errors must not exceed the supply


def _fill_up(amounts: Counts, proportions: Proportions, held: Mask, wanted: Counts, supply: Counts) -> None:
    """Raise the amounts, in place, as far as the devices' sizes, labels and the supply allow: a maximum flow.

    A device that lacks samples takes what is left of its labels, first of the one that is furthest below the
    device's proportion. If nothing is left, another holder of one of them gives up some and takes of another of its
    own labels instead, and so on: such chains are the augmenting paths of the flow. A giver keeps at least
    half of what it started with. Lists, not arrays: of a chain's few numbers NumPy looks at each by itself.
    """
    left = (supply - amounts.sum(axis=0)).tolist()
    lacking = (wanted - amounts.sum(axis=1)).tolist()
    step = (1 + wanted // 200).tolist()  # in turns and little by little, so that all fare alike
    has, keep, wanted_of = amounts.tolist(), ((amounts + 1) // 2).tolist(), proportions.tolist()
    labels_of = [np.flatnonzero(row).tolist() for row in held]
    holders = [np.flatnonzero(column).tolist() for column in held.T]
    queue = deque(device for device, missing in enumerate(lacking) if missing > 0)
    while queue:
        device = queue.popleft()
        surplus = [amount - aim for amount, aim in zip(has[device], wanted_of[device], strict=True)]
        first = sorted(labels_of[device], key=surplus.__getitem__)
        chain = _chain(device, first, has, keep, labels_of, holders, left)
        if not chain:
            continue
        gifts = [(giver, label) for (_, label), (giver, _) in pairwise(chain)]
        source = chain[-1][1]
        spare = (has[giver][label] - keep[giver][label] for giver, label in gifts)
        moved = min(step[device], lacking[device], left[source], *spare)
        for giver, label in gifts:
            has[giver][label] -= moved
        for taker, label in chain:
            has[taker][label] += moved
        left[source] -= moved
        lacking[device] -= moved
        if lacking[device] > 0:
            queue.append(device)
    amounts[:] = has


def _chain(
    device: int,
    first: list[int],
    has: list[list[int]],
    keep: list[list[int]],
    labels_of: list[list[int]],
    holders: list[list[int]],
    left: list[int],
) -> list[tuple[int, int]]:
    """Return the shortest chain of (who takes, which label) from a device to a label with samples left, if any."""
    front = first
    reached = dict.fromkeys(front, (device, -1))  # label -> who takes it, and the label given up for it
    while front and not any(left[label] > 0 for label in front):
        behind, front = front, []
        for label in behind:
            if len(reached) == len(left):
                break
            most: dict[int, tuple[int, int]] = {}  # for a label not reached yet: the most that a holder spares, and who
            for giver in holders[label]:
                spare = has[giver][label] - keep[giver][label]
                if spare > 0:
                    for other in labels_of[giver]:
                        if other not in reached and (other not in most or spare > most[other][0]):
                            most[other] = spare, giver
            for other in sorted(most):
                reached[other] = most[other][1], label
                front.append(other)
    label = next((label for label in front if left[label] > 0), -1)
    chain = []
    while label >= 0:
        taker, given_up = reached[label]
        chain.append((taker, label))
        label = given_up
    return chain[::-1]


def _cut(samples: NDArray[np.int64], sizes: Counts) -> list[NDArray[np.int64]]:
    """Return consecutive pieces of the given sizes."""
    ends = np.cumsum(sizes)
    return [samples[end - size : end] for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
