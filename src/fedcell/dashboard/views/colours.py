"""One look a policy, on every page and in every figure: Okabe and Ito's colours, as plots.STYLES has them."""

import threading
import zlib
from collections.abc import Iterable, Mapping

from fedcell.plots import STYLES

# Where a line's look stands in STYLES: the default race in its order, and the others behind them.
_PLACES = {
    "diverse": 0,
    "greedy": 1,
    "optimal": 2,
    "deadline:seconds=8": 3,
    "deadline:seconds=25": 4,
    "proportional_fair:k=8": 5,
    "random:k=8": 6,
    "all": 7,
    "all:sharing=equal": 8,
    "round_robin": 9,
}
_DASHES = ("-", "--", "-.", ":")
_LOOKS = len(STYLES) * len(_DASHES)

Look = tuple[str, str]


class Looks:
    """Who has which look. A line keeps the first that it gets, so that it looks the same on all pages of a server.

    Lines beyond the usual ones prefer a place by their hash, so that a restart mostly gives them the same again.
    """

    def __init__(self) -> None:
        self._places = dict(_PLACES)
        self._lock = threading.Lock()

    def of(self, line: str) -> Look:
        """Colour and dash of a policy line; after the last look they come again."""
        with self._lock:
            place = self._places.get(line)
            if place is None:
                place = self._free(len(STYLES) + zlib.crc32(line.encode()) % (_LOOKS - len(STYLES)))
                if len(self._places) < _LOOKS:
                    self._places[line] = place
        return _look(place)

    def _free(self, place: int) -> int:
        taken = set(self._places.values())
        after = [*range(place, _LOOKS), *range(len(STYLES), place)]
        return next((one for one in after if one not in taken), place)


_looks = Looks()


def _look(place: int) -> Look:
    """Colours come again with each of the other dashes."""
    colour, dash = STYLES[place % len(STYLES)]
    return colour, _DASHES[(_DASHES.index(dash) + place // len(STYLES)) % len(_DASHES)]


def styles(lines: Iterable[str]) -> dict[str, Look]:
    """Colour and dash of each policy line."""
    return {line: _looks.of(line) for line in lines}


def group_styles(policies: Mapping[str, str]) -> dict[str, Look]:
    """Looks of groups of runs by name, given each group's policy: its colour, and a dash for each of its groups.

    A fifth group of a policy has no dash left; it gets a look by its own name.
    """
    found: dict[str, Look] = {}
    for name, policy in policies.items():
        colour, dash = _looks.of(policy)
        first = _DASHES.index(dash)
        dashes = [_DASHES[(first + i) % len(_DASHES)] for i in range(len(_DASHES))]
        free = [one for one in dashes if (colour, one) not in found.values()]
        found[name] = (colour, free[0]) if free else _looks.of(name)
    return found
