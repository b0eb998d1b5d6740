"""Docstrings say ``Example:``; griffe knows the section as ``Examples:``."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rename it in one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
