"""Named things with settings, written in one line: ``greedy``, ``greedy:theta=0``, ``waypoint:pause_s=0..9``.

Policies, mobility, partitions, sizes and faults are all written so. What can be set are a dataclass's fields, and a
field's type says how its value is written: ``true`` or ``false`` for a bool, a number for an int or a float, one of the
words of a Literal, ``least..most`` or one value for ``tuple[float, float]``, and ``none`` where None is allowed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcell.errors import InputError, did_you_mean

T = TypeVar("T")

_WORDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number"}


def split(what: str, line: str) -> tuple[str, str]:
    """The part before the first colon and the part after it, without spaces around them.

    Args:
        what: what the line is for, for messages, such as ``"policy"``.
        line: such as ``"greedy:theta=0"``.
    """
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


settable: Callable[[type], tuple[Field[Any], ...]] = cache(lambda kind: tuple(f for f in fields(kind) if f.init))
"""The fields that can be set when a dataclass instance is made."""


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
    """A value of the type that the hint says.

    Args:
        text: as the user wrote it.
        hint: a type hint, resolved. A type that is not known here takes the text as it stands.
        what: the setting, for messages.
    """
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
