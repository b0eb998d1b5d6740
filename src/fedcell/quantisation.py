"""How many bits an upload has on the air with so many bits a weight: one definition for all of fedcell."""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError, short_repr
from fedcell.types import Floats, Vector

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


_HEADER, _MAGIC, _VERSION = "<2sBBI", b"FC", 1
_PIECE = 1 << 16  # levels that are packed at a time: whole bytes, and little memory


def pack(levels: NDArray[np.int16], scales: Vector, bits: int) -> bytes:
    """Return a rounded upload as it is sent: as many bits as `upload_bits` says, filled up with zeros to whole bytes.

    Args:
        levels: (P,) whole numbers from -L to L, with L = 2^(bits - 1) - 1.
        scales: (T,) of the tensors, float32.
        bits: a weight, from 2 to 16.

    Example:
        >>> import numpy as np
        >>> from fedcell.quantisation import pack, unpack
        >>> data = pack(np.array([-1, 0, 1], np.int16), np.array([0.5], np.float32), bits=2)
        >>> len(data), [array.tolist() for array in unpack(data, tensors=[3])[:2]]  # 64 + 32 + 3 * 2 bits
        (13, [[-1, 0, 1], [0.5]])
    """
    header = struct.pack(_HEADER, _MAGIC, _VERSION, bits, scales.size)
    codes = (levels + (2 ** (bits - 1) - 1)).astype(">u2")
    pieces = (
        np.packbits(np.unpackbits(codes[at : at + _PIECE].view(np.uint8)).reshape(-1, 16)[:, 16 - bits :]).tobytes()
        for at in range(0, codes.size, _PIECE)
    )
    return b"".join((header, scales.astype("<f4").tobytes(), *pieces))


def unpack(data: bytes, tensors: Sequence[int]) -> tuple[NDArray[np.int16], Vector, int]:
    """Return the levels, the scales and the bits a weight of what `pack` returned; anybody may have sent it.

    Args:
        data: as sent.
        tensors: the number of weights of each of the T arrays that the update must have.

    Raises:
        InputError: if the data is anything but a rounded update of these arrays.
    """
    count, start = sum(tensors), HEADER_BITS // 8 + SCALE_BITS // 8 * len(tensors)
    if len(data) < HEADER_BITS // 8 or data[: len(_MAGIC)] != _MAGIC:
        raise InputError("the data is no rounded update")
    _, version, bits, said = struct.unpack_from(_HEADER, data)
    if version != _VERSION or not FEWEST_BITS <= bits <= MOST_BITS:
        raise InputError(
            f"the rounded update has version {version} and {bits} bits a weight; this fedcell reads "
            f"version {_VERSION} with {FEWEST_BITS} to {MOST_BITS}"
        )
    if said != len(tensors) or len(data) != start + -(-count * bits // 8):
        raise InputError(
            f"the rounded update has {said} tensors in {len(data)} bytes, unlike the model's {len(tensors)}"
        )
    scales = np.frombuffer(data, "<f4", len(tensors), HEADER_BITS // 8).astype(np.float32)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        usable = bool(((scales >= 0.0) & np.isfinite(scales)).all())
    if not usable:
        raise InputError("the rounded update has a scale that is negative or not finite")
    codes, step = np.empty(count, np.uint16), _PIECE * bits // 8
    for at in range(0, count, _PIECE):
        piece = codes[at : at + _PIECE]
        first = start + at // _PIECE * step
        found = np.unpackbits(np.frombuffer(data[first : first + step], np.uint8))
        rows = np.zeros((piece.size, 16), np.uint8)
        rows[:, 16 - bits :] = found[: piece.size * bits].reshape(-1, bits)
        piece[:] = np.packbits(rows).view(">u2")
        if found[piece.size * bits :].any():
            raise InputError("the rounded update does not end in zeros")
    most = 2 ** (bits - 1) - 1
    if codes.max(initial=0) > 2 * most:
        raise InputError(f"the rounded update has a level above {most}")
    return (codes.astype(np.int32) - most).astype(np.int16), scales, bits
