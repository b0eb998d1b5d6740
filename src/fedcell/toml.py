"""TOML: read from a file that a user wrote, and written."""

import tomllib
from pathlib import Path
from typing import Any

from fedcell.errors import InputError

MAX_SPEC_BYTES = 2**20


def read_toml(path: str | Path, example: str) -> dict[str, Any]:
    """Read a TOML document that a user wrote.

    Args:
        path: the file.
        example: the command that prints one, for messages.

    Returns:
        The document; an InputError says why it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a TOML file ({example})") from None
    if len(content) > MAX_SPEC_BYTES:
        raise InputError(f"{path} is larger than {MAX_SPEC_BYTES >> 10} KiB; a spec is a short TOML document")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte at offset {error.start}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML ({error}); correct it") from None


def to_toml(document: dict[str, Any]) -> str:
    """A document of values, and of tables of values, as TOML."""
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    lines = _lines({name: value for name, value in document.items() if name not in tables})
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(values: dict[str, Any]) -> list[str]:
    """What is None is left out, which TOML cannot say."""
    return [f"{_toml_key(key)} = {toml_value(value)}" for key, value in values.items() if value is not None]


def _toml_key(key: str) -> str:
    return f'"{key}"' if "." in key else key


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.translate(_ESCAPES)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return repr(value)


_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\"} | {i: f"\\u{i:04x}" for i in [*range(32), 127]}
