"""The size of an upload: one definition, and what a view says that bits cost."""

import numpy as np
import pytest

import fedcell as fc
from fedcell.quantisation import BITS, upload_bits
from fedcell.schedule.laws import parse_law


def test_a_rounded_upload_has_a_header_scales_and_levels() -> None:
    found = upload_bits(1000, 4, np.array(BITS))
    assert found.tolist() == [64 + 4 * 32 + b * 1000 for b in (2, 3, 4, 8)] + [32_000]
    assert float(upload_bits(1000, 4, 32)) == 32_000


@pytest.mark.parametrize("of", [32.0, 8.0])
def test_a_part_is_of_what_the_upload_times_are_for(of: float) -> None:
    view = fc.RoundView(np.ones(2), np.ones(2), weights=1000, tensors=4, bits=of)
    assert float(view.upload_part(of)) == 1.0
    assert view.upload_part([2, 4]).tolist() == [
        float(upload_bits(1000, 4, b) / upload_bits(1000, 4, of)) for b in (2, 4)
    ]


@pytest.mark.parametrize("line", ["density", "blocks:count=9", "power", "dedicated", "ingress:bits_per_s=3e5"])
def test_what_a_view_says_that_bits_cost_is_what_the_plan_takes(line: str) -> None:
    law = parse_law(line).for_devices(np.array([3.0, 20.0]), 32_000)
    view = fc.RoundView([1.0, 2.0], [3.0, 4.0], weights=1000, tensors=4, law=law)
    bits, shares = np.array([2.0, 8.0]), np.array([1 / 3, 2 / 3])
    plan = fc.Plan(np.arange(2), shares, 1.0, bits=bits)
    part = view.upload_part(bits)
    np.testing.assert_array_equal(plan.seconds(view)[1], law.scaled(part).upload_s(part * view.upload_s, shares))


def test_without_the_number_of_weights_bits_cost_nobody_knows_what() -> None:
    with pytest.raises(fc.InputError, match="give the view weights"):
        fc.RoundView([1.0], [1.0]).upload_part(8)
