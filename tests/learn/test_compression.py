"""Compressions: what is sent, what is kept, and how many bits that has on the air."""

from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.learn.compression import COMPRESSIONS, Quantise, Sign, TopK, Whole, fed_back
from fedcell.learn.engine import HostUpdates

TENSORS = (30, 4, 6)


def updates_of(start: Any, changes: Any) -> HostUpdates:
    return HostUpdates([start] * len(changes), start + changes, np.ones(len(changes)), tensors=TENSORS)


@pytest.mark.parametrize(
    ("line", "bits"),
    [
        ("none", 32 * 50_890),
        ("quantise", 64 + 4 * 32 + 8 * 50_890),
        ("quantise:bits=2", 64 + 4 * 32 + 2 * 50_890),
        ("topk", 64 + 509 * (32 + 16)),
        ("topk:part=0.5", 64 + 25_445 * 32 + 50_890),  # a bit for every weight is shorter than numbers of 16 bits
        ("sign", 64 + 4 * 32 + 50_890),
    ],
)
def test_bits_on_the_air_are_all_that_has_to_be_sent(line: str, bits: int) -> None:
    compression = COMPRESSIONS.parse(line)
    assert compression.upload_bits(50_890, 4) == bits
    assert COMPRESSIONS.parse(COMPRESSIONS.format(compression)) == compression


def test_the_largest_entries_are_sent_as_they_are_and_the_first_of_equal_ones() -> None:
    update = np.array([1, -5, 2, 5, -2, 2], np.float32)
    assert TopK(0.5).sent(update, (6,)).tolist() == [0, -5, 2, 5, 0, 0]
    assert TopK(0.01).sent(update, (6,)).tolist() == [0, -5, 0, 0, 0, 0]
    assert TopK(1.0).sent(update, (6,)).tolist() == update.tolist()
    rng = np.random.default_rng(0)
    many = rng.normal(size=1000).astype(np.float32)
    kept = np.flatnonzero(TopK(0.1).sent(many, (1000,)))
    assert set(kept) == set(np.argsort(-np.abs(many), kind="stable")[:100])


def test_signs_have_the_mean_size_of_their_tensor() -> None:
    assert Sign().sent(np.array([1, -3, 0, 5], np.float32), (3, 1)).tolist() == [np.float32(4 / 3), -np.float32(4 / 3),
                                                                                np.float32(4 / 3), 5]  # fmt: skip
    assert Sign().sent(np.zeros(2, np.float32), (2,)).tolist() == [0, 0]


@pytest.mark.parametrize("compression", [TopK(0.1), Sign()])
def test_what_is_not_sent_is_sent_later_and_nothing_is_lost(compression: Any) -> None:
    rng = np.random.default_rng(1)
    kept: Any = {}
    sent, wanted = np.zeros((3, 40)), np.zeros((3, 40))
    for turn in range(30):
        start = rng.normal(size=40).astype(np.float32)
        devices = np.array([0, 1, 2] if turn % 3 == 0 else [turn % 2])  # device 2 is there every third round
        before, changes = kept, rng.normal(size=(devices.size, 40)).astype(np.float32)
        found, kept = fed_back(compression, updates_of(start, changes), start, devices, kept, TENSORS, sums=True)
        wanted[devices] += (start + changes) - start
        sent[devices] += found.models() - start
        for device in {0, 1, 2} - set(devices.tolist()):
            assert kept[device] is before[device]
        np.testing.assert_allclose(found.sums(), updates_of(start, changes).sums())
    for device in range(3):
        np.testing.assert_allclose(sent[device] + kept[device], wanted[device], atol=1e-4)
        assert np.linalg.norm(kept[device]) < 0.8 * np.linalg.norm(wanted[device]) * (1 + (compression == TopK(0.1)))


def test_a_diverged_update_shows_it() -> None:
    start = np.zeros(40, np.float32)
    changes = np.full((1, 40), np.inf, np.float32)
    found, _ = fed_back(TopK(), updates_of(start, changes), start, np.array([0]), {}, TENSORS, sums=False)
    assert not np.isfinite(found.models()).any()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "quantise:bits=2,feedback=true",
            "error feedback with 2-bit stochastic rounding diverges, .*leave feedback out",
        ),
        ("quantise:bits=1", "quantise has 1.0 bits a weight; give a whole number from 2 to 16"),
        ("quantise:bits=32", "quantise has 32 bits a weight, which rounds nothing; write none"),
        ("topk:part=0", "part is 0"),
        ("topk:part=1.5", "part of topk is 1.5; give a number above 0, up to 1"),
        ("signs", "unknown compression 'signs'; did you mean 'sign'"),
        ("sign:bits=2", "compression 'sign' takes no settings"),
    ],
)
def test_what_cannot_be_is_one_sentence(line: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        COMPRESSIONS.parse(line)


def test_only_those_without_memory_leave_the_bits_to_others() -> None:
    assert [one.feedback for one in (Whole(), Quantise(), TopK(), Sign())] == [False, False, True, True]
    assert [one.bits for one in (Whole(), Quantise(4), TopK(), Sign())] == [32, 4, 32, 32]
