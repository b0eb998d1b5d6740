"""Partitions: disjoint, of the right sizes and labels, reproducible; and what is refused."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.learn import partition as module
from fedcell.learn.data import load_dataset
from fedcell.learn.partition import (
    Dirichlet,
    Equal,
    Iid,
    Kind,
    Labels,
    Lognormal,
    Zipf,
    label_counts,
    parse_kind,
    parse_sizes,
    partition,
)
from fedcell.rng import stream
from twins.dealing import fill_up

KINDS = ("iid", "labels:1", "labels:2", "labels:3", "labels:2,free", "dirichlet:0.1", "dirichlet:5")
SIZES = ("equal", "lognormal:0.7", "zipf:1")


@pytest.fixture(scope="module")
def digits() -> NDArray[np.int64]:
    return load_dataset("mnist").train_y


def random_labels(samples: int, classes: int, seed: int) -> NDArray[np.int64]:
    """Unequally frequent labels, each of them present."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, samples, p=rng.dirichlet(np.full(classes, 5.0)))
    labels[:classes] = np.arange(classes)
    return np.asarray(rng.permutation(labels), np.int64)


def paper_counts(digits: NDArray[np.int64], kind: str, seed: int = 0) -> NDArray[np.int64]:
    return label_counts(digits, partition(digits, 20, kind, stream(seed, "partition")), 10)


# The properties of every partition


@settings(deadline=None, max_examples=200)
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.sampled_from(SIZES),
    devices=st.integers(1, 25),
    samples=st.integers(40, 600),
    classes=st.integers(3, 8),
    seed=st.integers(0, 10_000),
)
def test_every_partition(kind: str, sizes: str, devices: int, samples: int, classes: int, seed: int) -> None:
    labels = random_labels(samples, classes, seed)
    try:
        parts = partition(labels, devices, kind, stream(seed, "partition"), sizes)
    except InputError as error:  # too few samples for so many devices with L labels each
        assume("give fewer devices" not in str(error))
        raise
    everything = np.concatenate(parts)
    assert len(parts) == devices
    assert min(map(len, parts)) >= 1
    assert len(np.unique(everything)) == len(everything)
    assert 0 <= everything.min() <= everything.max() < samples
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    if not kind.startswith("labels"):
        expected = devices * (samples // devices) if sizes == "equal" else samples
        assert len(everything) == expected
    again = partition(labels, devices, kind, stream(seed, "partition"), sizes)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@settings(deadline=None, max_examples=150)
@given(
    per_device=st.integers(1, 6),
    mode=st.sampled_from(["balanced", "free"]),
    devices=st.integers(1, 40),
    classes=st.integers(6, 12),
    seed=st.integers(0, 10_000),
)
def test_each_device_holds_exactly_l_labels(
    per_device: int,
    mode: str,
    devices: int,
    classes: int,
    seed: int,
) -> None:
    labels = np.repeat(np.arange(classes), 3 * devices)
    parts = partition(labels, devices, f"labels:{per_device},{mode}", stream(seed, "partition"))
    counts = label_counts(labels, parts, classes)
    assert ((counts > 0).sum(axis=1) == per_device).all()
    if mode == "balanced":
        holders = (counts > 0).sum(axis=0)
        assert holders.max() - holders.min() <= int(devices * per_device % classes > 0)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), devices=st.integers(2, 5), per_device=st.integers(1, 2))
def test_no_device_goes_short_without_need(seed: int, devices: int, per_device: int) -> None:
    """Hall's condition, from both sides: any devices together get at most what their labels hold, and if
    there is plenty of every label then all get their full size."""
    labels = random_labels(120, 4, seed)
    supply = np.bincount(labels, minlength=4)
    parts = partition(labels, devices, f"labels:{per_device}", stream(seed, "partition"))
    counts = label_counts(labels, parts, 4)
    held = counts > 0
    for size in range(1, devices + 1):
        for some in combinations(range(devices), size):
            assert counts[list(some)].sum() <= supply[held[list(some)].any(axis=0)].sum()
    short = counts.sum(axis=1) < 120 // devices
    # A device is short only if all the labels it holds are used up.
    assert (counts.sum(axis=0) == supply)[held[short].any(axis=0)].all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "iid"])
@pytest.mark.parametrize("sizes", SIZES)
def test_labels_are_dealt_as_its_twin_does(kind: str, sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, devices in enumerate((2, 5, 12, 20, 20, 40)):
        labels = random_labels(600, 7, seed)
        fast = partition(labels, devices, kind, np.random.default_rng(seed), sizes)
        with monkeypatch.context() as patched:
            patched.setattr(module, "_fill_up", fill_up)
            slow = partition(labels, devices, kind, np.random.default_rng(seed), sizes)
        assert [part.tolist() for part in fast] == [part.tolist() for part in slow]


@pytest.mark.parametrize("kind", ["iid", "labels:1", "labels:2,free", "dirichlet:0.5"])
def test_samples_are_drawn_from_all_over_the_data(kind: str) -> None:
    """A device's samples of a label are no block of neighbours, which may come from one source."""
    labels = np.arange(8000) % 4
    for part in partition(labels, 8, kind, stream(0, "partition")):
        for label in np.unique(labels[part]):
            positions = part[labels[part] == label] / 8000
            assert abs(positions.mean() - 0.5) < 5 * np.sqrt(1 / 12 / len(positions))


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(3, 40), min_size=1, max_size=12),
    kind=st.sampled_from(["iid", "dirichlet:0.3"]),
)
def test_given_sizes_are_kept(sizes: list[int], kind: str) -> None:
    labels = random_labels(500, 5, 3)
    parts = partition(labels, len(sizes), kind, stream(1, "partition"), sizes)
    assert [len(part) for part in parts] == sizes


# The paper's partitions: 60,000 digits on 20 devices


def test_iid_devices_look_alike(digits: NDArray[np.int64]) -> None:
    counts = paper_counts(digits, "iid")
    assert (counts.sum(axis=1) == 3000).all()
    expected = 3000 * np.bincount(digits) / 60000
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("per_device", [2, 5, 8])
def test_balanced_labels_on_the_papers_devices(digits: NDArray[np.int64], per_device: int) -> None:
    counts = paper_counts(digits, f"labels:{per_device}")
    assert (counts.sum(axis=1) == 3000).all()
    assert ((counts > 0).sum(axis=1) == per_device).all()
    assert ((counts > 0).sum(axis=0) == 2 * per_device).all()
    even = 3000 / per_device
    assert (counts[counts > 0] > even / 2).all()
    assert (counts[counts > 0] < even * 1.5).all()


def test_one_label_each_is_as_much_as_the_label_has(digits: NDArray[np.int64]) -> None:
    counts = paper_counts(digits, "labels:1")
    halves = np.minimum(np.bincount(digits) // 2, 3000)
    for label in range(10):
        held = counts[counts[:, label] > 0, label]
        assert len(held) == 2
        assert (abs(held - halves[label]) <= 1).all()


def test_free_labels_share_what_is_short(digits: NDArray[np.int64]) -> None:
    """What the module's text says of the free mode: unequal holders, devices that go short, labels unused."""
    smallest, unused = 3000, 0
    for seed in range(20):
        counts = paper_counts(digits, "labels:2,free", seed)
        held = counts > 0
        assert (held.sum(axis=1) == 2).all()
        assert counts.sum(axis=1).max() <= 3000
        assert counts[held].min() >= 300
        assert np.ptp(held.sum(axis=0)) >= 2
        smallest = min(smallest, int(counts.sum(axis=1).min()))
        unused += 60000 - int(counts.sum())
    assert 1000 < smallest < 2500
    assert unused > 20 * 1000


def test_free_draws_hit_every_pair_of_labels_alike() -> None:
    labels = np.repeat(np.arange(4), 3000)
    counts = label_counts(labels, partition(labels, 1200, "labels:2,free", stream(0, "partition")), 4)
    pairs = [int(((counts[:, a] > 0) & (counts[:, b] > 0)).sum()) for a, b in combinations(range(4), 2)]
    assert sum(pairs) == 1200
    assert all(abs(count - 200) < 5 * np.sqrt(200) for count in pairs)


def test_dirichlet_concentrates_as_alpha_falls(digits: NDArray[np.int64]) -> None:
    """The share of a device's most frequent label: near 1 for alpha near 0, near 1/10 for a large alpha."""
    largest = []
    for alpha in (0.01, 0.1, 1, 10, 1000):
        counts = paper_counts(digits, f"dirichlet:{alpha}")
        assert (counts.sum(axis=1) == 3000).all()
        largest.append((counts.max(axis=1) / 3000).mean())
    assert all(np.diff(largest) < 0)
    assert largest[0] > 0.75
    assert largest[-1] < 0.14


@pytest.mark.parametrize("size", [20, 100])
def test_dirichlet_has_the_variance_of_its_name(size: int) -> None:
    """With plenty of every label the variance of the shares is Dirichlet's, (C - 1) / (C^2 (C alpha + 1))."""
    labels = np.repeat(np.arange(4), 30_000)
    parts = partition(labels, 300, "dirichlet:2", stream(0, "partition"), [size] * 300)
    shares = label_counts(labels, parts, 4) / size
    assert shares.mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert shares.var() == pytest.approx(3 / (16 * 9), rel=0.15)


def test_seeds_differ_and_devices_are_not_favoured_by_their_index(digits: NDArray[np.int64]) -> None:
    first, second = (paper_counts(digits, "labels:2", seed) for seed in (0, 1))
    assert (first != second).any()
    sizes = np.mean([paper_counts(digits, "labels:1,free", seed).sum(axis=1) for seed in range(60)], axis=0)
    assert abs(sizes[:10].mean() - sizes[10:].mean()) < 120


# Sizes


def test_spreads_use_every_sample(digits: NDArray[np.int64]) -> None:
    zipf = [len(part) for part in partition(digits, 20, "iid", stream(0, "partition"), "zipf:1")]
    harmonic = (1 / np.arange(1, 21)).sum()
    assert sorted(zipf, reverse=True)[:2] == pytest.approx([60000 / harmonic, 30000 / harmonic], abs=20)
    assert zipf != sorted(zipf, reverse=True)  # the large ones are anywhere
    sizes = [len(part) for part in partition(digits, 2000, "iid", stream(0, "partition"), "lognormal:0.5")]
    assert sum(sizes) == 60000
    assert np.log(sizes).std() == pytest.approx(0.5, rel=0.1)


def test_what_does_not_divide_is_left_out() -> None:
    parts = partition(np.zeros(23, int), 4, "iid", stream(0, "partition"))
    assert [len(part) for part in parts] == [5, 5, 5, 5]


def test_labels_need_not_be_numbered_without_gaps() -> None:
    labels = np.repeat([3, 70, 500], 20)
    counts = label_counts(labels, partition(labels, 6, "labels:1", stream(0, "partition")), 501)
    assert counts.shape == (6, 501)
    assert (counts[:, [3, 70, 500]].sum(axis=0) == 20).all()


# The grammar


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("iid", Iid()),
        ("labels:2", Labels(per_device=2)),
        ("labels:L=2", Labels(per_device=2)),
        ("labels:per_device=3", Labels(per_device=3, mode="balanced")),
        ("labels:2,free", Labels(per_device=2, mode="free")),
        ("labels:mode=free, L=4", Labels(per_device=4, mode="free")),
        ("dirichlet:0.5", Dirichlet(alpha=0.5)),
        ("dirichlet:alpha=1e-2", Dirichlet(alpha=0.01)),
    ],
)
def test_partitions_are_parsed(text: str, kind: Kind) -> None:
    assert parse_kind(text) == kind


def test_sizes_are_parsed() -> None:
    assert parse_sizes("equal") == Equal()
    assert parse_sizes("lognormal:0.5") == parse_sizes("lognormal:sigma=0.5") == Lognormal(sigma=0.5)
    assert parse_sizes("zipf:1.2") == Zipf(exponent=1.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lables:2", r"unknown partition 'lables'; did you mean 'labels'\?"),
        ("", r"unknown partition ''; choose from dirichlet, iid, labels"),
        ("iid:3", r"partition 'iid' takes no settings, but '3' was given; leave it out"),
        ("labels", r"partition 'labels' needs per_device; write labels:per_device=..."),
        ("labels:0", r"per_device is 0; give a whole number of at least 1"),
        ("labels:1.5", r"per_device of partition 'labels' is '1.5'; give a whole number"),
        ("labels:-1", r"per_device is -1; give a whole number of at least 1"),
        ("labels:2,fair", r"mode of partition 'labels' is 'fair'; did you mean 'free'\?"),
        ("labels:2,free,numbered,3", r"'3' in partition 'labels' is not understood; write key=value"),
        ("labels:2,L=3", r"partition 'labels' is given per_device twice; give it once"),
        ("labels:l=3", r"partition 'labels' has no setting 'l'; choose from mode, order, per_device"),
        ("dirichlet", r"partition 'dirichlet' needs alpha; write dirichlet:alpha=..."),
        ("dirichlet:0", r"alpha is 0.0; give a finite number above 0"),
        ("dirichlet:nan", r"alpha is nan; give a finite number above 0"),
        ("dirichlet:inf", r"alpha is inf; give a finite number above 0"),
        ("dirichlet:x", r"alpha of partition 'dirichlet' is 'x'; give a number"),
    ],
)
def test_wrong_partitions_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_kind(text)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("even", r"unknown sizes 'even'; choose from equal, lognormal, zipf"),
        ("zipf", r"sizes 'zipf' needs exponent; write zipf:exponent=..."),
        ("lognormal:-1", r"sigma is -1.0; give a finite number above 0"),
        ([3, 3], r"sizes are \[3, 3\]; give 3 positive integers, one for each device"),
        ([3, 0, 3], r"sizes are \[3, 0, 3\]; give 3 positive"),
        ([3.5, 2.5, 1.0], r"sizes are \[3.5, 2.5, 1.0\]; give 3 positive"),
        ([20, 20, 21], r"sizes add up to 61, more than the 60 samples; give smaller ones"),
    ],
)
def test_wrong_sizes_are_refused(sizes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        partition(np.zeros(60, int), 3, "iid", stream(0, "partition"), sizes)


@pytest.mark.parametrize("devices", [0, -1, 61, 2.5, True])
def test_wrong_numbers_of_devices_are_refused(devices: Any) -> None:
    with pytest.raises(InputError, match=rf"devices is {devices}; give 1 to 60, at least a sample for each"):
        partition(np.zeros(60, int), devices, "iid", stream(0, "partition"))


@pytest.mark.parametrize("labels", [np.zeros((3, 2), int), np.zeros(3), np.zeros(0, int), np.array([1, -1])])
def test_wrong_labels_are_refused(labels: NDArray[Any]) -> None:
    with pytest.raises(InputError, match=r"labels are \w+ of shape \(.*\); give \(N,\) integers from 0 on"):
        partition(labels, 1, "iid", stream(0, "partition"))


def test_too_many_labels_or_devices_say_what_to_change() -> None:
    labels = np.repeat(np.arange(3), [40, 40, 2])
    with pytest.raises(InputError, match=r"labels per device is 4, but the data has 3; give fewer"):
        partition(labels, 3, "labels:4", stream(0, "partition"))
    with pytest.raises(InputError, match=r"label 2 has 2 samples for 6 devices; give fewer devices"):
        partition(labels, 6, "labels:3", stream(0, "partition"))
    with pytest.raises(InputError, match=r"device 1 needs 2 labels but has only 1 samples; give fewer devices"):
        partition(np.arange(40) % 4, 2, "labels:2", stream(0, "partition"), [30, 1])
