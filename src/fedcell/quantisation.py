"""How many bits an upload has on the air with so many bits a weight: one definition for all of fedcell."""

import numpy as np
from numpy.typing import ArrayLike

from fedcell.errors import InputError, short_repr
from fedcell.types import Floats

WEIGHT_BITS = 32
"""Bits of a weight as it is, a float32."""
BITS = (2, 3, 4, 8, 32)
"""Bits a weight that are worth choosing from."""
FEWEST_BITS, MOST_BITS = 2, 16
"""The least and most bits a weight of a rounded upload: -1, 0 and 1, or 65,535 levels."""
HEADER_BITS = 64
"""Of a rounded upload: ``FC``, the version and the bits a weight as a byte each, the number of tensors in 32 bits."""
SCALE_BITS = 32
"""Of a rounded upload, for each tensor: its largest entry, a float32."""


def upload_bits(weights: float, tensors: int, bits: ArrayLike) -> Floats:
    """Return the sizes of uploads with so many bits a weight.

    A rounded upload has a header, a scale for each tensor, and ``bits`` for each weight; with 32 bits the weights go as
    they are.

    Args:
        weights: number of weights of the model.
        tensors: number of arrays that they are in.
        bits: (...) bits a weight.

    Returns:
        (...) the sizes in bits.

    Example:
        >>> from fedcell.quantisation import upload_bits
        >>> upload_bits(weights=50_890, tensors=4, bits=[2, 8, 32]).tolist()
        [101972.0, 407312.0, 1628480.0]
    """
    each = np.asarray(bits, np.float64)
    rounded = HEADER_BITS + SCALE_BITS * tensors + each * weights
    return np.where(each < WEIGHT_BITS, rounded, WEIGHT_BITS * weights)


def upload_part(weights: float | None, tensors: int, bits: ArrayLike, whole: float) -> Floats:
    """Return the sizes of uploads as parts of that of one with ``whole`` bits a weight.

    Args:
        weights: number of weights; an InputError if it is not known.
        tensors: number of arrays that they are in.
        bits: (...) bits a weight.
        whole: bits a weight of the upload that is 1.

    Returns:
        (...) parts, which are also those of the upload's time.
    """
    if weights is None:
        raise InputError(
            "the plan says how many bits a weight are uploaded, but not of how many weights; give the view weights"
        )
    return upload_bits(weights, tensors, bits) / upload_bits(weights, tensors, whole)


def checked_bits(what: str, bits: Floats) -> Floats:
    """Return these bits a weight, or raise an InputError that begins with ``what`` unless all of them can be sent."""
    odd = ~((bits == WEIGHT_BITS) | ((bits >= FEWEST_BITS) & (bits <= MOST_BITS) & (bits == np.floor(bits))))
    if odd.any():
        raise InputError(
            f"{what} {short_repr(float(bits[odd][0]))} bits a weight; give a whole number from {FEWEST_BITS} to "
            f"{MOST_BITS}, or {WEIGHT_BITS} for the weights as they are"
        )
    return bits
