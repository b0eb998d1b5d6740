"""InputError, and the checks that raise it: one sentence for each mistake."""

from __future__ import annotations  # NumPy only where an array is checked: the command line starts without it

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

# A terminal obeys control characters, and half a surrogate pair cannot be written at all.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class InputError(ValueError):
    """Invalid input: a value that cannot be used.

    The message is one sentence that names what is wrong, the value, and what to do. The command line prints it without
    a traceback and exits with status 2.

    Example:
        >>> import fedcell as fc
        >>> fc.Deadline(seconds=-1.0)
        Traceback (most recent call last):
        fedcell.errors.InputError: seconds is -1.0; give the deadline as a positive number of seconds
    """


def require_number(name: str, value: object, above: float = -inf, least: float = -inf) -> None:
    """Refuse whatever is not one finite number in the range.

    Args:
        name: the field, for the message.
        value: what the user gave.
        above: a bound that the number must exceed.
        least: a bound that the number may equal.
    """
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{name} is {value!r}; give one number")
    try:
        good = isfinite(value) and value > above and value >= least
    except OverflowError:  # an int beyond the largest float
        good = False
    if not good:
        raise InputError(f"{name} is {_plain(value)}; give a finite number{_range_text(above, least)}")


def require_whole(name: str, value: object, least: int) -> None:
    """Refuse whatever is not one whole number of at least ``least``."""
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} is {_plain(value)}; give a whole number of at least {least}")


def require_array(name: str, value: ArrayLike, above: float = -inf, least: float = -inf) -> NDArray[np.float64]:
    """The value as a float64 array, a scalar (0-d) or a vector (1-d), with every entry finite and in the range."""
    import numpy as np

    try:
        raw = np.asarray(value)
    except ValueError:  # rows of unequal length
        raw = np.asarray(None)
    if raw.dtype.kind not in "iuf" or raw.ndim > 1:
        raise InputError(f"{name} is {short_repr(value)}; give one number or a list of numbers")
    array = raw.astype(np.float64)
    bad = ~(np.isfinite(array) & (array > above) & (array >= least))
    if bad.any():
        reject(name, array, bad, f"give a finite number{_range_text(above, least)}")
    return array


def require_target(name: str, target: object) -> None:
    """Refuse what is not an accuracy to reach."""
    import numpy as np

    if isinstance(target, bool) or not isinstance(target, int | float | np.integer | np.floating):
        raise InputError(f"{name} is {short_repr(target)}; give an accuracy between 0 and 1, such as 0.8")
    if not 0.0 < target <= 1.0:
        raise InputError(f"{name} is {target:g}; give an accuracy between 0 and 1, such as 0.8")


@contextmanager
def user_code(name: str, what: str = "policy") -> Iterator[None]:
    """Turn whatever a user's own code raises into an InputError with its name, what it is, the error and its line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        raise InputError(
            f"{what} {name!r} failed with {type(error).__name__}: {' '.join(str(error).split())} "
            f"({last.filename}, line {last.lineno}); correct it"
        ) from error


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array through which it cannot be changed; what Numba compiled takes only the array itself."""
    if not array.flags.writeable:
        return array
    seen = array.view()
    seen.setflags(write=False)
    return seen


def writable(value: ArrayLike) -> ArrayLike:
    """The array of which read_only gave a view, without a copy; anything else as it is."""
    import numpy as np

    if not isinstance(value, np.ndarray) or value.flags.writeable or not isinstance(value.base, np.ndarray):
        return value
    base: NDArray[Any] = value.base
    same = base.ctypes.data == value.ctypes.data and (base.shape, base.strides, base.dtype) == (
        value.shape,
        value.strides,
        value.dtype,
    )
    return base if same else value


def reject(name: str, array: NDArray[np.float64], bad: NDArray[np.bool_], advice: str) -> NoReturn:
    """Raise for the first bad entry; name its index unless the user gave one number for all."""
    import numpy as np

    index = int(np.argmax(bad))
    where = name if array.ndim == 0 else f"{name}[{index}]"
    raise InputError(f"{where} is {array.flat[index]:.15g}; {advice}")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, None if none is."""
    near = get_close_matches(word.lower().replace("-", "_"), sorted(known), n=1, cutoff=0.5)
    return near[0] if near else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The close of an error about an unknown word: the nearest known one, or ``otherwise``, or else all of them."""
    names = sorted(known)
    near = nearest(word, names)
    return f"did you mean {near!r}?" if near else otherwise or f"choose from {', '.join(names)}"


def _plain(value: object) -> str:
    import numpy as np

    return repr(value.item() if isinstance(value, np.generic) else value)


def short_repr(value: object) -> str:
    """The value as Python writes it, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def printable(text: str) -> str:
    """The text, of a file, say, with Python's escapes for what a terminal would obey instead of printing it."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _range_text(above: float, least: float) -> str:
    if above > -inf:
        return f" above {above:g}"
    return f" of at least {least:g}" if least > -inf else ""
