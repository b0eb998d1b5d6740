"""Named things with settings, written in one line: ``greedy``, ``greedy:theta=0``, ``waypoint:pause_s=0..9``.

Policies, mobility, partitions, sizes and faults are all written so. What can be set are a dataclass's fields, and a
field's type says how its value is written: ``true`` or ``false`` for a bool, a number for an int or a float, one of the
words of a Literal, ``least..most`` or one value for ``tuple[float, float]``, and ``none`` where None is allowed.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, fields
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcell.errors import InputError, did_you_mean, user_code

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

_WORDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def split(what: str, line: str) -> tuple[str, str]:
    """The parts of a line before and after the first colon, without spaces around them; ``what``: for messages."""
    if not isinstance(line, str):
        raise InputError(f"{what} is {line!r}; give its name as text")
    name, _, rest = line.partition(":")
    return name.strip(), rest.strip()


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of the table with this name; case does not matter, nor does - for _."""
    found = table.get(name.replace("-", "_").lower())
    if found is None:
        raise InputError(f"unknown {what} {name!r}; {did_you_mean(name, table)}")
    return found


def parse(what: str, line: str, table: Mapping[str, type[T]], **forms: Any) -> T:
    """The value that a line such as ``waypoint:pause_s=0`` describes.

    Args:
        what: what the line is for, for messages.
        line: ``name`` or ``name:key=value,key=value``.
        table: the dataclass for each name.
        forms: the options of :func:`build`.
    """
    name, text = split(what, line)
    return build(choose(what, name, table), what, name, text, **forms)


def build(
    kind: type[T],
    what: str,
    name: str,
    text: str,
    *,
    positional: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
    otherwise: Mapping[str, Any] | None = None,
) -> T:
    """Make a dataclass instance of settings such as ``k=3,relative=true``.

    Args:
        kind: the dataclass.
        what: what it is, for messages, such as ``"policy"``.
        name: its name there, such as ``"random"``.
        text: ``key=value`` items, separated by commas.
        positional: the fields whose values may stand without a key, first of all and in this order.
        aliases: other names of fields.
        given: fields that are set already, and so cannot be in the text.
        otherwise: values of fields that the text leaves out, instead of their defaults.
    """
    own = f"{what} {name!r}"
    values = dict(given or {})
    known = {f.name: f for f in settable(kind) if f.name not in values}
    for position, item in enumerate(filter(None, (part.strip() for part in text.split(",")))):
        if not known:
            raise InputError(f"{own} takes no settings, but {item!r} was given; leave it out")
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            if position >= len(positional):
                raise InputError(f"{item!r} in {own} is not understood; write key=value")
            key, value = positional[position], key
        key = (aliases or {}).get(key, key)
        if key not in known:
            raise InputError(f"{own} has no setting {key!r}; {did_you_mean(key, known)}")
        if key in values:
            raise InputError(f"{own} is given {key} twice; give it once")
        values[key] = read_value(value, type_hints(kind)[key], f"{key} of {own}")
    missing = [key for key, f in known.items() if key not in values and default(f) is MISSING]
    if missing:
        example = ",".join(f"{key}=..." for key, f in known.items() if default(f) is MISSING)
        raise InputError(f"{own} needs {' and '.join(missing)}; write {name}:{example}")
    return kind(**{**(otherwise or {}), **values})


def write(name: str, value: Any, *, defaults: bool = False) -> str:
    """The line that :func:`parse` turns into this dataclass instance again.

    Args:
        name: the first word of the line.
        value: the dataclass instance.
        defaults: whether settings at their defaults are written too.
    """
    written = {f.name: getattr(value, f.name) for f in settable(type(value))}
    usual = {} if defaults else {f.name: default(f) for f in settable(type(value))}
    texts = [f"{key}={_text(setting)}" for key, setting in written.items() if setting != usual.get(key, MISSING)]
    return f"{name}:{','.join(texts)}" if texts else name


NOT_IN_A_LINE = {"line": False}
"""Metadata of a dataclass's field that is no setting in a line, such as an array."""
settable: Callable[[type], tuple[Field[Any], ...]] = cache(
    lambda kind: tuple(f for f in fields(kind) if f.init and f.metadata.get("line", True))
)
"""The fields that are settings in a line."""


def default(field: Field[Any]) -> Any:
    """A field's default, MISSING if it has none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


type_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)
"""The types of a dataclass's fields. They never change, and take as long as the rest of a policy's making."""


def scalar(hint: Any) -> type:
    """bool, int, float or str: as which of them a value with this type hint is written."""
    first = _alternatives(hint)[0]
    if isinstance(first, type):
        return next((kind for kind in _WORDS if issubclass(first, kind)), str)
    return str


def read_value(text: str, hint: Any, what: str) -> Any:
    """A value of the type that the hint says; what is not known here stays text. ``what``: for messages."""
    if NoneType in get_args(hint) and text.lower() == "none":
        return None
    *others, last = _alternatives(hint)
    for alternative in others:
        try:
            return _read_one(text, alternative, what)
        except InputError:
            continue
    return _read_one(text, last, what)


def _alternatives(hint: Any) -> list[Any]:
    """The members of a union but None; of any other hint, the hint itself."""
    if get_origin(hint) not in (Union, UnionType):
        return [hint]
    return [member for member in get_args(hint) if member is not NoneType]


def _read_one(text: str, hint: Any, what: str) -> Any:
    if get_origin(hint) is Literal:
        words = [str(word) for word in get_args(hint)]
        if text not in words:
            raise InputError(f"{what} is {text!r}; {did_you_mean(text, words)}")
        return get_args(hint)[words.index(text)]
    if get_origin(hint) is tuple and get_args(hint) == (float, float):
        least, dots, most = text.partition("..")
        try:
            return float(least), float(most if dots else least)
        except ValueError:
            raise InputError(f"{what} is {text!r}; give a number, or two as least..most") from None
    kind = scalar(hint)
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if kind is not str:
        raise InputError(f"{what} is {text!r}; give {_WORDS[kind]}")
    return text


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "..".join(_text(part) for part in value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


class Registry(Mapping[str, type[T]]):
    """The kinds of one thing by name: ``LAWS["blocks"]`` is a class, ``LAWS.parse("blocks:15")`` one of its instances.

    A class is imported when it is first used, so that whoever only needs the names imports nothing.

    Args:
        what: what they are, for messages, such as ``"policy"``.
        kinds: where each class is, as ``module:Class``, by its name.
        positional: of a class, the names of the settings whose values may stand without a key; by default none.
        base: where the base class is that a user's own classes must have, which are named ``module:Class:key=value``;
            by default there are none but these.
        advice: how to make one's own, for messages.
        group: of the entry points by which installed packages add names of their own.

    Example:
        >>> from fedcell.settings import Registry
        >>> cells = Registry("cell", {"disc": "fedcell.world.cell:Cell"})
        >>> list(cells), cells.parse("disc:radius_m=5").radius_m
        (['disc'], 5.0)
    """

    def __init__(
        self,
        what: str,
        kinds: Mapping[str, str],
        *,
        positional: Callable[[type[Any]], Sequence[str]] = lambda _: (),
        base: str = "",
        advice: str = "",
        group: str = "",
    ) -> None:
        self.what, self.group = what, group
        self.places, self._positional, self._base, self._advice = dict(kinds), positional, base, advice
        self.installed = cache(self._installed)

    def __getitem__(self, name: str) -> type[T]:
        module, _, attribute = self.places[name].partition(":")
        kind: type[T] = getattr(import_module(module), attribute)
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def parse(self, text: str, *, allow_import: bool = True, otherwise: Mapping[str, Any] | None = None) -> T:
        """Return what a line such as ``blocks:count=15`` describes.

        Args:
            text: ``name[:key=value[,key=value...]]`` with one of the names or one that an installed package adds, or
                ``package.module:Class[:key=value...]`` where there may be a user's own. Names come first.
            allow_import: whether a user's own may be imported. False for lines from people who may not run code here.
            otherwise: values of settings that the line leaves out, instead of their defaults.
        """
        with user_code(text, self.what) if self._base else nullcontext():
            name, rest = split(self.what, text)
            if not self.names_code(text):
                kind = self._named(name)
            elif not allow_import:
                raise InputError(
                    f"{self.what} {text!r} is a Python class, which cannot be imported here; give named "
                    f"{_several(self.what)} only ({', '.join(self)}), or use the command line for your own"
                )
            else:
                kind, rest = self._own(text, name, rest)
            if ":" in rest and self._base:
                raise InputError(
                    f"{self.what} {text!r} has more than one list of settings; write {name}:key=value,key=value"
                )
            return build(kind, self.what, name, rest, positional=self._positional(kind), otherwise=otherwise)

    def format(self, value: T) -> str:
        """Return the line that :meth:`parse` turns into this instance again; defaults are left out."""
        return write(self.name_of(type(value)), value)

    def name_of(self, kind: type[Any]) -> str:
        """Return the name of a class: ours, that of an installed package, or ``module:Class``."""
        from fedcell.plugins import MAIN

        place = f"{kind.__module__}:{kind.__name__}"
        for name, known in self.places.items():
            if known == place:
                return name
        for name, point in self.installed().items():
            if point.value == place:
                return name
        # A worker process has a script by another name.
        return f"{MAIN[0]}:{kind.__name__}" if kind.__module__ in MAIN else place

    def names_code(self, text: str) -> bool:
        """Whether a line describes a user's own class, which is imported, and not one by its name."""
        name, rest = split(self.what, text)
        first = split(self.what, rest)[0]
        if not self._base or _plain(name) in self.places:
            return False
        return "." in name or not (not first or "=" in first or first[0] in "+-.0123456789")

    def is_built_in(self, text: str) -> bool:
        """Whether a line describes one that is part of fedcell."""
        return _plain(split(self.what, text)[0]) in self.places

    def canonical(self, text: str) -> str:
        """Return a line as :meth:`format` writes it; that of a user's own stays where nothing may be imported."""
        from fedcell.plugins import may_import

        return text if not may_import() and not self.is_built_in(text) else self.format(self.parse(text))

    def known(self, text: str) -> T | None:
        """Return what a line describes; None for a user's own where nothing may be imported."""
        from fedcell.plugins import may_import

        return self.parse(text) if may_import() or self.is_built_in(text) else None

    def either(self, attribute: str) -> str:
        """Return the names of our classes of which this attribute is true, for messages: ``a, b or c``."""
        *names, last = [name for name, kind in self.items() if getattr(kind, attribute)]
        return f"{', '.join(names)} or {last}" if names else last

    def _named(self, name: str) -> type[T]:
        others = self.installed()
        if _plain(name) in self.places:
            return self[_plain(name)]
        if _plain(name) not in others:
            raise InputError(f"unknown {self.what} {name!r}; {did_you_mean(name, [*self, *others])}")
        point = others[_plain(name)]
        owner = f"{self.what} {name!r} of the package {_package(point)!r}"
        try:
            found = point.load()
        except Exception as error:  # whatever another package's module raises
            raise InputError(f"{owner} cannot be loaded ({type(error).__name__}: {error}); reinstall it") from None
        return self._checked(found, point.value, owner)

    def _own(self, text: str, module: str, rest: str) -> tuple[type[T], str]:
        """A class of a user's own, and its settings."""
        from fedcell.plugins import load_own

        name, settings = split(self.what, rest)
        if not name or rest.count(":") > 1 or not all(map(str.isidentifier, module.split("."))):
            raise InputError(f"{self.what} {text!r} is not understood; write package.module:Class:key=value")
        owner = f"{self.what} {text!r}"
        return self._checked(load_own(owner, module, name), name, owner), settings

    def _checked(self, found: Any, name: str, owner: str) -> type[T]:
        module, _, base = self._base.partition(":")
        if not (isinstance(found, type) and issubclass(found, getattr(import_module(module), base))):
            raise InputError(f"{owner}: {name} is not a fedcell {base}; {self._advice}")
        return found

    def _installed(self) -> "dict[str, EntryPoint]":
        """The entry points of installed packages, by name; a name that is taken is not used again, which is said."""
        if not self.group:
            return {}
        from importlib.metadata import entry_points  # 15 ms

        found: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=_package):
            first = found.setdefault(_plain(point.name), point)
            if _package(first) != _package(point):
                warnings.warn(
                    f"{self.what} {first.name!r} of the package {_package(point)!r} is not used: the package "
                    f"{_package(first)!r} has one of this name; uninstall one of them",
                    stacklevel=2,
                )
        for name in sorted(found.keys() & self.places):
            warnings.warn(
                f"{self.what} {name!r} of the package {_package(found[name])!r} is not used: fedcell has one of this "
                "name; rename the entry point",
                stacklevel=2,
            )
        return {name: point for name, point in sorted(found.items()) if name not in self.places}


def file_first(kind: type[Any]) -> list[str]:
    """The setting of a class that may stand without a key: its file, if it has one."""
    return [field.name for field in settable(kind) if field.name == "file"]


def _package(point: "EntryPoint") -> str:
    return point.dist.name if point.dist else "unknown"


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _several(what: str) -> str:
    return f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
