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
# The colour of a policy by its name alone; with other settings it keeps the colour and gets another dash.
_FAMILIES = {"deadline": 3, "proportional_fair": 5, "random": 6} | {
    name: place for name, place in _PLACES.items() if ":" not in name
}
_DASHES = ("-", "--", "-.", ":")
_LOOKS = len(STYLES) * len(_DASHES)

LineStyle = tuple[str, str]


class Looks:
    """Who has which look. A line keeps the first that it gets, so that it looks the same on all pages of a server.

    Lines beyond the usual ones get their policy's colour with a dash that is free, or else any look that is free.
    """

    def __init__(self) -> None:
        self._places = _FAMILIES | _PLACES
        self._lock = threading.Lock()

    def of(self, line: str) -> LineStyle:
        """Colour and dash of a policy line; after the last look they come again."""
        with self._lock:
            place = self._places.get(line)
            if place is None:
                place = self._free(line)
                if len(self._places) < _LOOKS:
                    self._places[line] = place
        return _look(place)

    def _free(self, line: str) -> int:
        taken = set(self._places.values())
        any_ = len(STYLES) + zlib.crc32(line.encode()) % (_LOOKS - len(STYLES))
        family = _FAMILIES.get(line.partition(":")[0], any_)
        wanted = [*range(family, _LOOKS, len(STYLES)), *range(any_, _LOOKS), *range(len(STYLES), any_)]
        return next((one for one in wanted if one not in taken), any_)


_looks = Looks()


def _look(place: int) -> LineStyle:
    """Colours come again with each of the other dashes."""
    colour, dash = STYLES[place % len(STYLES)]
    return colour, _DASHES[(_DASHES.index(dash) + place // len(STYLES)) % len(_DASHES)]


def styles(lines: Iterable[str]) -> dict[str, LineStyle]:
    """Colour and dash of each policy line."""
    return {line: _looks.of(line) for line in lines}


def plan_styles(lines: Iterable[str]) -> dict[str, LineStyle]:
    """Looks of the plans of one table, whose k changes with every move of a slider: by the policy's name."""
    families = {line: line if line in _PLACES else line.partition(":")[0] for line in lines}
    return group_styles(families)


def group_styles(policies: Mapping[str, str]) -> dict[str, LineStyle]:
    """Looks of groups of runs by name, given each group's policy: its colour, and a dash for each of its groups.

    A fifth group of a policy has no dash left; it gets a look by its own name.
    """
    found: dict[str, LineStyle] = {}
    for name, policy in policies.items():
        colour, dash = _looks.of(policy)
        first = _DASHES.index(dash)
        dashes = [_DASHES[(first + i) % len(_DASHES)] for i in range(len(_DASHES))]
        free = [one for one in dashes if (colour, one) not in found.values()]
        found[name] = (colour, free[0]) if free else _looks.of(name)
    return found
