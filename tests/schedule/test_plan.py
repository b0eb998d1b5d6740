"""What follows from a plan: when its devices train and send, and what a part of it is."""

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.plan import Links

C, T = [0.5, 9.0, 2.0, 1.0], [3.0, 9.0, 4.0, 5.0]
LINKS = Links(np.array(C), np.array(T), epochs=2.0, weights=1000, tensors=4)
PLAIN = fc.Plan(np.array([0, 2, 3]), np.array([0.25, 0.5, 0.25]), 9.0)
RICH = fc.Plan(
    PLAIN.devices, PLAIN.shares, 9.0, np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 4.0]), np.array([32.0, 8.0, 2.0])
)


def test_a_device_trains_then_sends_with_its_share() -> None:
    timing = PLAIN.timing(LINKS)
    assert timing.began_s.tolist() == [3.0, 4.0, 5.0]
    assert timing.finish_s.tolist() == [5.0, 8.0, 9.0] == PLAIN.finish_s(C, T).tolist()
    assert PLAIN.starts().tolist() == [0.0, 0.0, 0.0]
    assert (PLAIN.work(2.0), PLAIN.part(LINKS)) == (None, None)


def test_epochs_bits_and_the_downlink_count() -> None:
    work, part = RICH.work(2.0), RICH.part(LINKS)
    assert work is not None
    assert part is not None
    assert work.tolist() == [0.5, 1.0, 2.0]
    assert part.tolist() == LINKS_PART
    training_s, upload_s = RICH.seconds(LINKS)
    assert training_s.tolist() == [1.5, 4.0, 10.0]
    assert upload_s.tolist() == pytest.approx([2.0 * LINKS_PART[0], 4.0 * LINKS_PART[1], 4.0 * LINKS_PART[2]])
    timing = RICH.timing(LINKS)
    np.testing.assert_allclose(timing.began_s, [1.6, 4.2, 10.3])
    np.testing.assert_allclose(timing.finish_s, timing.began_s + upload_s)


LINKS_PART = [1.0, (64 + 4 * 32 + 8 * 1000) / 32_000, (64 + 4 * 32 + 2 * 1000) / 32_000]


def test_a_part_of_a_plan_keeps_what_its_devices_were_given() -> None:
    for which in (np.array([0, 2]), np.array([True, False, True])):
        some = RICH.take(which)
        assert (some.devices.tolist(), some.shares.tolist(), some.round_s) == ([0, 3], [0.25, 0.25], 9.0)
        assert [None if x is None else x.tolist() for x in (some.starts_s, some.epochs, some.bits)] == [
            [0.1, 0.3],
            [1.0, 4.0],
            [32.0, 2.0],
        ]
        few = PLAIN.take(which)
        assert (few.devices.tolist(), few.starts_s, few.epochs, few.bits) == ([0, 3], None, None, None)
    links = LINKS.take(np.array([2, 0]))
    assert (links.upload_s.tolist(), links.compute_s.tolist(), links.weights) == ([2.0, 0.5], [4.0, 3.0], 1000)
    nobody = fc.Plan.empty(4.0)
    assert (nobody.devices.size, nobody.shares.size, nobody.round_s) == (0, 0, 4.0)


def test_other_starts_leave_the_rest() -> None:
    assert PLAIN.starting(None) is PLAIN
    later = PLAIN.starting(np.array([1.0, 1.0, 2.0]))
    assert later.starts().tolist() == [1.0, 1.0, 2.0]
    assert later.finish_s(C, T).tolist() == [6.0, 9.0, 11.0]
    assert later.starting(None).starts().tolist() == [0.0, 0.0, 0.0]
