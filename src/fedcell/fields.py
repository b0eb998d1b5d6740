"""Fields that are declared once, with bounds, help and option; sections of a spec made of them."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, NoReturn, Self, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from fedcell.errors import InputError, did_you_mean, require_number, require_whole, short_repr
from fedcell.types import Floats

T = TypeVar("T")


@dataclass(frozen=True)
class About:
    """What is said of a field of a spec, in its annotation: ``Annotated[float, Gt(0), About("Radius of the cell.")]``.

    Attributes:
        help: a sentence or two, with the unit.
        option: of ``fedcell race``, without the dashes; none if empty.
        label: of its input in the page's form of a race; the form has none if empty. The unit is added.
        unit: of the number, as on the page.
        scale: how many of the field's unit make one of ``unit``: 1e6 for a field in Hz that the page has in MHz.
        step: of the page's input.
        choices: values that may be chosen or, where others are possible, suggested; those of a Literal are known.
        default: the default in words, where its value would not say it.
        topic: the title of the page's explanation of it; it has none if empty.
        since: the version that first had it. At its default, a field that version 0.1 did not have is not in a run's
            key, so that the keys of older runs stay.
    """

    help: str
    option: str = ""
    label: str = ""
    unit: str = ""
    scale: float = 1.0
    step: float | None = None
    choices: Callable[[], list[str]] | tuple[str, ...] = ()
    default: str = ""
    topic: str = ""
    since: str = "0.1"


@dataclass(frozen=True)
class Declared:
    """A field as it is declared.

    Attributes:
        name: of the field.
        kind: ``number``, ``whole``, ``text``, ``truth`` or ``list``.
        types: all that its annotation names.
        about: what is said of it.
        words: of a choice.
        bounds: the metadata Gt, Ge, Lt and Le of a number.
    """

    name: str
    kind: str
    types: tuple[Any, ...]
    about: About
    words: tuple[str, ...]
    bounds: tuple[Any, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """Of a choice, or suggested."""
        return self.words or tuple(self.about.choices() if callable(self.about.choices) else self.about.choices)

    @property
    def nullable(self) -> bool:
        """Whether it may be None."""
        return NoneType in self.types

    @property
    def is_choice(self) -> bool:
        """Whether it has one of its choices, and no other value."""
        return any(get_origin(one) is Literal for one in self.types)

    def bound(self, kind: type[Any]) -> float | None:
        """The bound of this kind, such as Gt; None without."""
        found = next((bound for bound in self.bounds if isinstance(bound, kind)), None)
        return None if found is None else float(getattr(found, kind.__name__.lower()))


_READ: dict[type[Any], dict[str, Declared]] = {}


def declared(owner: type[Any]) -> dict[str, Declared]:
    """The fields of a class of which About says something, by name; read once."""
    if owner not in _READ:
        hints = {name: _parts(hint) for name, hint in get_type_hints(owner, include_extras=True).items()}
        abouts = {
            name: next((one for one in extras if isinstance(one, About)), None) for name, (_, extras) in hints.items()
        }
        _READ[owner] = {name: _read(name, about, *hints[name]) for name, about in abouts.items() if about is not None}
    return _READ[owner]


def _parts(hint: Any) -> tuple[Any, list[Any]]:
    """A type, and what is said of it beside."""
    if not hasattr(hint, "__metadata__"):
        return hint, []
    return get_args(hint)[0], [
        one for extra in hint.__metadata__ for one in (getattr(extra, "metadata", None) or [extra])
    ]


def _read(name: str, about: About, hint: Any, extras: list[Any]) -> Declared:
    types = _types(hint)
    words = tuple(str(word) for one in types if get_origin(one) is Literal for word in get_args(one))
    bounds = tuple(extra for extra in extras if isinstance(extra, Gt | Ge | Lt | Le))
    return Declared(name, _kind(types), types, about, words, bounds)


def _types(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is None or get_origin(hint) in (Literal, list, dict):
        return (hint,)
    if hint == Floats:
        return (hint,)
    inner = tuple(one for part in get_args(hint) for one in _types(part))
    return inner or (hint,)


def _kind(types: tuple[Any, ...]) -> str:
    if Floats in types:
        return "number"
    for kind, name in ((bool, "truth"), (str, "text"), (float, "number"), (int, "whole")):
        if kind in types:
            return name
    return "list" if any(get_origin(one) is list for one in types) else "text"


class _Sections(type):
    """Of sections: an unknown field is one sentence, as every other mistake."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        for name in given.keys() - declared(cls).keys():
            raise InputError(f"unknown field {name!r}; {did_you_mean(name, declared(cls))}")
        return super().__call__(*args, **given)


class Section(metaclass=_Sections):
    """A frozen dataclass that is a section of a spec too; equal sections have equal documents."""

    def document(self) -> dict[str, Any]:
        """The fields as TOML and JSON have them."""
        found = self.__dict__.get("_document")
        if found is None:
            found = self.__dict__["_document"] = self._written()
        return {name: list(value) if isinstance(value, list) else value for name, value in found.items()}

    def _written(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in declared(type(self))}

    @classmethod
    def of_document(cls, document: Any) -> Self:
        """The section of a document; a section is returned as it is."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping) or not all(isinstance(name, str) for name in document):
            raise InputError(f"give its fields, not {short_repr(document)}")
        return cls(**document)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Section) and self.document() == other.document()

    def __hash__(self) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            written = tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in self.document().items())
            found = self.__dict__["_hash"] = hash(written)
        return int(found)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        write = core_schema.plain_serializer_function_ser_schema(lambda section: section.document())
        return core_schema.no_info_plain_validator_function(cls.of_document, serialization=write)


@dataclass_transform(frozen_default=True)
def section(kind: type[T]) -> type[T]:
    """Make a class of annotated fields a frozen dataclass, and add what is said of the fields to its docstring."""
    made = dataclass(frozen=True, eq=False, init="__init__" not in vars(kind))(kind)
    made.__doc__ = with_attributes(made)
    return made


def with_attributes(kind: type[Any]) -> str:
    """The docstring of a class with what is said of its fields, before the example."""
    lines = [
        f"        {name}: {field.about.help}\n" for name, field in declared(kind).items() if field.about is not None
    ]
    head, example, tail = (kind.__doc__ or "").partition("    Example:\n")
    return f"{head}    Attributes:\n{''.join(lines)}\n{example}{tail}"


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Begin the sentence of a mistake with the field that it is in."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def checked(owner: type[Any], name: str, value: Any) -> Any:
    """The value of a field as the type that its class declares; an InputError if it is none or out of bounds."""
    field = declared(owner)[name]
    if value is None and field.nullable:
        return None
    if field.is_choice:
        if value not in field.choices:
            raise InputError(f"{name} is {value!r}; {did_you_mean(str(value), field.choices)}")
    elif field.kind == "text" and not isinstance(value, str):
        raise InputError(f"{name} is {short_repr(value)}; give text")
    elif field.kind == "whole":
        require_whole(name, value, int(_or(field.bound(Ge), 0)))
        require_number(name, value)
        return int(value)
    elif field.kind == "number":
        require_number(name, value, _or(field.bound(Gt), -math.inf), _or(field.bound(Ge), -math.inf))
        if value >= _or(field.bound(Lt), math.inf):
            raise InputError(f"{name} is {value!r}; give a number below {field.bound(Lt):g}")
        if value > _or(field.bound(Le), math.inf):
            raise InputError(f"{name} is {value!r}; give at most {field.bound(Le):g}")
        return float(value)
    return value


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


# --- lists and dictionaries of a spec, which stay as they are --------------------------------------------------------


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:  # noqa: ARG001
    raise InputError("a spec cannot be changed; spec.changed({...}) returns a changed copy of it")


class FrozenList(list[Any]):
    """A list that cannot be changed.

    Example:
        >>> from fedcell.fields import FrozenList
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
        >>> from fedcell.fields import FrozenDict
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
        >>> from fedcell.fields import frozen
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
