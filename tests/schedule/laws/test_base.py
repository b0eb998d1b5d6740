"""What every law says of itself unless its class says otherwise."""

import math
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.laws import parse_law

LINES = ("density", "blocks:count=9", "power", "dedicated", "ingress:bits_per_s=3e5")


def test_a_band_has_no_units_and_blocks_have_as_many_devices() -> None:
    density, blocks = fc.Density(), fc.Blocks(9)
    assert (density.units, density.max_devices) == (None, math.inf)
    assert (blocks.units, blocks.max_devices, blocks.capacity) == (9, 9, "9 resource blocks")


def test_what_a_law_does_with_shares_of_the_band() -> None:
    density, c, shares = fc.Density(), np.array([1.0, 3.0, 2.0]), np.array([0.2, 0.5, 0.3])
    assert density.equal_shares(c, c).tolist() == [1 / 3] * 3
    assert density.upload_s(c, shares).tolist() == pytest.approx([5.0, 6.0, 20 / 3])
    assert density.solo_s(density.upload_s(c, shares), shares).tolist() == pytest.approx(c.tolist())
    assert density.held_share(shares) is shares
    assert density.power_fraction(c, shares) is shares
    assert density.resources(0.25, 2e6) == {"bandwidth_hz": 5e5}
    assert density.notes(2e6) == []
    assert "over the whole band of 2 MHz" in density.notes(2e6, total_power=True)[0]


@pytest.mark.parametrize("line", LINES)
def test_an_upload_alone_is_what_it_would_have_been_with_everything(line: str) -> None:
    """From how long it took with a share, as a server observes it."""
    law = parse_law(line).for_devices(np.array([3.0, 20.0, 5.0]), 32_000)
    c, shares = np.array([1.0, 2.0, 4.0]), np.array([1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(law.solo_s(law.upload_s(c, shares), shares), law.upload_s(c, np.ones(3)))


def test_laws_say_what_they_can() -> None:
    assert [parse_law(line).carries_late for line in LINES] == [True, False, False, True, False]
    assert (fc.Density().separable, fc.Dedicated().separable) == (False, True)
    assert fc.Density().proportional
    assert not parse_law("power").proportional


def test_a_name_of_0_2_is_answered_with_the_new_one() -> None:
    blocks: Any = fc.Blocks(9)
    with pytest.warns(DeprecationWarning, match="most of a link law is called max_devices; write that"):
        assert blocks.most == 9
    with pytest.raises(AttributeError, match="'Blocks' object has no attribute 'least'"):
        _ = blocks.least


def test_with_lines_of_their_own_all_is_training_and_nothing_is_shared() -> None:
    law, upload_s, compute_s = fc.Dedicated(), np.array([1.0, 1e9, 0.5]), np.array([2.0, 0.0, 0.25])
    needs = law.needs(upload_s, compute_s)
    assert needs.t.tolist() == [3.0, 1e9, 0.75]
    assert needs.c.tolist() == needs.e.tolist() == pytest.approx([0.75e-15] * 3)  # next to nothing beside the shortest
    assert law.needs(1e6 * upload_s, compute_s).c.tolist() == pytest.approx([1e-15] * 3)
    assert law.equal_shares(upload_s, compute_s).tolist() == [1.0] * 3
    assert law.held_share(np.ones(2)).tolist() == [0.0, 0.0]
    assert (law.own_lines, law.carries_late, law.resources(1.0, 3e6)) == (True, True, {})


def test_a_pipe_bounds_what_lines_of_their_own_bring() -> None:
    law = fc.Ingress(2e6).for_devices(None, 1_000_000)
    assert law == fc.Ingress(pipe_s=0.5)
    assert fc.Ingress(pipe_s=0.5).for_devices(None, 1.0) == fc.Ingress(pipe_s=0.5)
    whole_s, shares = np.array([1.0, 3.0]), np.array([0.25, 0.75])
    assert law.upload_s(whole_s, shares).tolist() == [2.0, 3.0]
    assert law.power_fraction(whole_s, shares).tolist() == [0.5, 1.0]
    assert law.solo_s(np.array([2.0, 3.0]), shares).tolist() == [2.0, 3.0]
    assert law.scaled(np.array([0.5, 1.0])).upload_s(np.array([0.5, 3.0]), shares).tolist() == [1.0, 3.0]
    assert law.scaled(np.array([0.5, 1.0])).take(np.array([1])).upload_s(np.ones(1), np.full(1, 0.5)).tolist() == [1.0]
    assert (fc.Ingress(2e6).resources(0.5, 3e6), law.resources(0.5, 3e6)) == ({"bits_per_s": 1e6}, {})
    with pytest.raises(fc.InputError, match="ingress needs seconds here"):
        fc.Ingress(2e6).check((1,))
    both: list[dict[str, float]] = [{}, {"bits_per_s": 1e6, "pipe_s": 1.0}]
    for settings in both:
        with pytest.raises(fc.InputError, match="ingress needs the rate of the server's uplink"):
            fc.Ingress(**settings)
