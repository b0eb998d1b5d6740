"""Lists and dictionaries that stay as they are: equal to the usual ones, written like them, and hashable."""

from typing import Any, NoReturn

from fedcell.errors import InputError


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:  # noqa: ARG001
    raise InputError("a spec cannot be changed; spec.changed({...}) returns a changed copy of it")


class FrozenList(list[Any]):
    """A list that cannot be changed.

    Example:
        >>> from fedcell.frozen import FrozenList
        >>> FrozenList([1, 2]) == [1, 2], hash(FrozenList([1, 2])) == hash(FrozenList([1, 2]))
        (True, True)
    """

    __slots__ = ()
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[Any, Any]):
    """A dictionary that cannot be changed.

    Example:
        >>> from fedcell.frozen import FrozenDict
        >>> FrozenDict(a=1) == {"a": 1}
        True
    """

    __slots__ = ()
    update = pop = popitem = clear = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def frozen(value: Any) -> Any:
    """The value with all its lists and dictionaries frozen; anything else as it is.

    Args:
        value: as Python or TOML gives it.

    Example:
        >>> from fedcell.frozen import frozen
        >>> isinstance(hash(frozen({"a": [1, [2]]})), int)
        True
    """
    if isinstance(value, FrozenList | FrozenDict):
        return value
    if isinstance(value, list):
        return FrozenList(map(frozen, value))
    if isinstance(value, dict):
        return FrozenDict({key: frozen(inner) for key, inner in value.items()})
    return value
