"""One colour a policy, on every page and in every figure: Okabe and Ito's, as plots.STYLES has them."""

from collections.abc import Iterable, Sequence

from fedcell.plots import STYLES, Curve

# Where a line's usual style stands in STYLES: the default race in its order, and the others behind them.
_PLACES = {
    "diverse": 0,
    "greedy": 1,
    "optimal": 2,
    "deadline:seconds=8": 3,
    "deadline:seconds=25": 4,
    "proportional_fair": 5,
    "random": 6,
    "all": 7,
    "all:sharing=equal": 8,
    "round_robin": 9,
    "deadline": 3,
}
_SECOND_DASH = {"-": ":", "--": "-.", "-.": "--", ":": "-"}


def places(lines: Iterable[str]) -> dict[str, int]:
    """A place in STYLES for each policy line: its usual one, or the next that is free."""
    taken: dict[str, int] = {}
    ordered = list(dict.fromkeys(lines))
    for names in (ordered, [line.partition(":")[0] for line in ordered]):
        for line, name in zip(ordered, names, strict=True):
            place = _PLACES.get(name)
            if line not in taken and place is not None and place not in taken.values():
                taken[line] = place
    for line in ordered:
        if line not in taken:
            taken[line] = next(place for place in range(len(ordered) + len(STYLES)) if place not in taken.values())
    return {line: taken[line] for line in ordered}


def styles(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and dash of each policy line; after the last colours come again, with another dash."""
    found = {}
    for line, place in places(lines).items():
        colour, dash = STYLES[place % len(STYLES)]
        found[line] = (colour, dash if place < len(STYLES) else _SECOND_DASH[dash])
    return found


def placed(curves: Sequence[Curve]) -> list[Curve]:
    """The curves at their places, for race_figure styles a curve by its place; empty ones stand between."""
    import numpy as np

    nothing = np.empty(0)
    found = {place: curve for (_, place), curve in zip(places(c.name for c in curves).items(), curves, strict=True)}
    return [found.get(place, Curve("_", nothing, nothing, nothing)) for place in range(max(found, default=-1) + 1)]
