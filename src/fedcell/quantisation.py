"""Uploads with few bits a weight: how they are rounded, what that costs in accuracy, and how many bits they have.

One definition for all of fedcell, slow and obvious: `fedcell.learn.compression` is the same compiled, and the engines
give the same models bit for bit. An update u, a tensor at a time, has the scale s = max |u| and L = 2^(bits - 1) - 1
levels on each side of zero. An entry becomes the level below or above u L / s, at random so that its mean is u
(stochastic rounding), and arrives as level times s / L.

All arithmetic is of float32, every operation rounded once and none fused: f = L / s, x = u f, low = floor(x), x - low,
s / L, level (s / L). The random number of entry i of an update, counted over all its tensors, is the upper 24 bits of a
hash of i and of two words of 32 bits that the upload's key is made into: nothing depends on the order of the entries.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

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


def upload_part(
    weights: float | None, tensors: int, bits: ArrayLike, whole: float, overhead_bits: float = 0.0
) -> Floats:
    """Return the sizes of uploads as parts of that of one with ``whole`` bits a weight.

    Args:
        weights: number of weights; an InputError if it is not known.
        tensors: number of arrays that they are in.
        bits: (...) bits a weight.
        whole: bits a weight of the upload that is 1.
        overhead_bits: what every upload has beside, such as headers of protocols.

    Returns:
        (...) parts, which are also those of the upload's time.
    """
    if weights is None:
        raise InputError(
            "the plan says how many bits a weight are uploaded, but not of how many weights; give the view weights (in "
            "a run whose task.compression is topk or sign nobody decides the bits: use none or quantise)"
        )
    one: Any = bits
    if isinstance(one, int | float):  # asked again and again by searches
        return _upload_part(weights, tensors, float(one), whole, overhead_bits)
    part, of = upload_bits(weights, tensors, bits), upload_bits(weights, tensors, whole)
    return (part + overhead_bits) / (of + overhead_bits)


@lru_cache(maxsize=64)
def _upload_part(weights: float, tensors: int, bits: float, whole: float, overhead_bits: float) -> Floats:
    part, of = upload_bits(weights, tensors, bits), upload_bits(weights, tensors, whole)
    return np.float64((part + overhead_bits) / (of + overhead_bits))  # type: ignore[return-value]  # as of an array


def checked_bits(what: str, bits: Floats) -> Floats:
    """Return these bits a weight, or raise an InputError that begins with ``what`` unless all of them can be sent."""
    odd = ~((bits == WEIGHT_BITS) | ((bits >= FEWEST_BITS) & (bits <= MOST_BITS) & (bits == np.floor(bits))))
    if odd.any():
        raise InputError(
            f"{what} {short_repr(float(bits[odd][0]))} bits a weight; give a whole number from {FEWEST_BITS} to "
            f"{MOST_BITS}, or {WEIGHT_BITS} for the weights as they are"
        )
    return bits


MIN_SCALE = 2.0**-100
"""A tensor whose largest entry is smaller counts as zero: so nothing here overflows, or is a denormal number."""
_STREAM = crc32(b"rounding")


def levels_of(bits: ArrayLike) -> Floats:
    """Return the levels on each side of zero: 2^(bits - 1) - 1.

    Example:
        >>> from fedcell.quantisation import levels_of
        >>> levels_of([2, 8, 16]).tolist()
        [1.0, 127.0, 32767.0]
    """
    return 2.0 ** (np.asarray(bits, np.float64) - 1.0) - 1.0


def key_words(key: Sequence[int]) -> tuple[int, int]:
    """Return the two words of 32 bits, the second of them odd, that an upload's random numbers are made of.

    Args:
        key: nonnegative integers that name the upload, such as seed, round and device. Other draws with the same key,
            such as dropout's, are independent of these.
    """
    first, second = np.random.SeedSequence(list(key), spawn_key=(_STREAM,)).generate_state(2).tolist()
    return first, second | 1


def draws(count: int, key: Sequence[int]) -> Vector:
    """Return the random numbers (count,) of an upload's entries: multiples of 2^-24 from 0 to below 1, float32.

    Entry i has the upper 24 bits of mix(i b + a), with a, b the key's two words, all modulo 2^32, and ``mix`` the
    mixing function "lowbias32" of Chris Wellons.

    Example:
        >>> from fedcell.quantisation import draws
        >>> draws(2, key=(7, 0, 3)).tolist() == draws(5, key=(7, 0, 3))[:2].tolist()
        True
    """
    first, second = key_words(key)
    x = np.arange(count, dtype=np.uint32) * np.uint32(second) + np.uint32(first)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def round_update(
    update: Vector, tensors: Sequence[int], bits: int, key: Sequence[int]
) -> tuple[NDArray[np.int16], Vector]:
    """Round an update to few bits a weight.

    A tensor without an entry of at least MIN_SCALE becomes zeros, with the scale 0; one with an entry that is not
    finite has the scale NaN, and arrives as NaN.

    Args:
        update: (P,) float32, the trained model minus its start.
        tensors: the number of weights of each of the T arrays that it consists of, in its order.
        bits: a weight, from 2 to 16.
        key: nonnegative integers that name the upload; see `key_words`.

    Returns:
        The levels (P,), whole numbers from -L to L, and the scales (T,), float32.

    Example:
        >>> import numpy as np
        >>> from fedcell.quantisation import restore, round_update
        >>> levels, scales = round_update(np.array([0.5, -2.0, 0.0, 3.0], np.float32), (3, 1), bits=2, key=(0, 0, 1))
        >>> levels[1:].tolist(), scales.tolist()  # the first may be 0 or 1
        ([-1, 0, 1], [2.0, 3.0])
        >>> restore(levels, scales, (3, 1), bits=2)[1:].tolist()
        [-2.0, 0.0, 3.0]
    """
    most, drawn = np.float32(levels_of(bits)), draws(len(update), key)
    levels, scales = np.zeros(len(update), np.int16), np.zeros(len(tensors), np.float32)
    for tensor, part in enumerate(_parts(tensors)):
        u = update[part]
        scale = np.abs(u).max(initial=np.float32(0.0))
        if not np.isfinite(scale):
            scales[tensor] = np.nan
        elif scale >= MIN_SCALE:
            scales[tensor] = scale
            x = u * (most / scale)
            low = np.floor(x)
            level = low + (drawn[part] < x - low)
            levels[part] = np.clip(level, -most, most)
    return levels, scales


def restore(levels: NDArray[np.int16], scales: Vector, tensors: Sequence[int], bits: int) -> Vector:
    """Return the update (P,) that arrives, float32; see round_update."""
    steps = scales / np.float32(levels_of(bits))
    return np.concatenate([levels[part] * step for part, step in zip(_parts(tensors), steps, strict=True)])


def _parts(tensors: Sequence[int]) -> Iterator[slice]:
    """The places of each tensor in a vector of all."""
    ends = np.cumsum(tensors).tolist()
    return map(slice, [0, *ends], ends)


def sums_of(update: Vector, tensors: Sequence[int]) -> tuple[float, float, float]:
    """Return an update's peaks, absolutes and squares, which `noise` takes.

    Args:
        update: (P,).
        tensors: as in round_update; () if it is one.

    Example:
        >>> import numpy as np
        >>> from fedcell.quantisation import sums_of
        >>> sums_of(np.array([0.5, -2.0, 3.0], np.float32), (2, 1))
        (17.0, 14.0, 13.25)
    """
    peaks = absolutes = squares = 0.0
    for part in _parts(tensors or (len(update),)):
        u = np.abs(update[part].astype(np.float64))
        scale = float(u.max(initial=0.0))
        peaks += u.size * scale**2
        absolutes += scale * float(u.sum())
        squares += float((u**2).sum())
    return peaks, absolutes, squares


def noise(peaks: ArrayLike, absolutes: ArrayLike, squares: ArrayLike, bits: ArrayLike) -> Floats:
    """Return the mean of |Q(u) - u|^2 from three sums over an update's tensors: exactly for 2 bits, else about.

    With one level on each side an entry's part of a step is |u| / s, so that the noise is absolutes - squares. With L
    of them, parts that are spread evenly give peaks / (6 L^2), which is within 10 % from 6 bits on and up to 1.6 times
    too much with 3. It is kept between two bounds that always hold: absolutes / L - squares and absolutes / L.

    Args:
        peaks: (...) sum over the tensors of the number of weights times s^2, with s the largest |u| of the tensor.
        absolutes: (...) sum over the tensors of s times the sum of |u|.
        squares: (...) sum of u^2.
        bits: (...) a weight; 32 for the weights as they are, which have no noise.

    Example:
        >>> from fedcell.quantisation import noise
        >>> noise(peaks=8.0, absolutes=5.0, squares=4.25, bits=[2, 32]).tolist()  # of (0.5, -2.0), as above
        [0.75, 0.0]
    """
    whole, levels = np.asarray(bits) >= WEIGHT_BITS, levels_of(bits)
    most = np.asarray(absolutes, np.float64) / levels
    least = np.maximum(most - np.asarray(squares, np.float64), 0.0)
    spread = np.asarray(peaks, np.float64) / (6.0 * levels**2)
    return np.where(whole, 0.0, np.where(levels == 1.0, least, np.clip(spread, least, most)))


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
        raise InputError("the data is not a rounded update")
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
