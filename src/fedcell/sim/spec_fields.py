"""All fields of a spec as they are declared: what options, the page's form and the docs' table are made of."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

from fedcell.fields import About, Declared, declared
from fedcell.sim.spec import Spec

SHOWN_VALUES = 3
SECTIONS = ("", "cell", "devices", "task")


@dataclass(frozen=True)
class SpecField:
    """A field of a spec: its path (``cell.radius_m``), how it is declared, and its default in a document."""

    path: str
    declared: Declared
    default: Any

    @property
    def about(self) -> About:
        """What is said of it."""
        return self.declared.about

    @property
    def default_text(self) -> str:
        """The default in words."""
        if self.about.default:
            return self.about.default
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return "none" if self.default is None else str(self.default)

    def in_words(self, value: Any) -> str:
        """Its value in a race's line: its label, the value and the unit; empty if that is the default."""
        if value == self.default:
            return ""
        name = self.about.label or self.path.rpartition(".")[2].replace("_", " ")
        if isinstance(value, list):
            return f"{name} of each" if len(value) > SHOWN_VALUES else f"{name} {', '.join(map(str, value))}"
        if isinstance(value, bool):
            return name if value else f"no {name}"
        text = f"{value / self.about.scale:g}" if isinstance(value, int | float) else str(value)
        return f"{name} {text} {self.about.unit}".strip()

    @property
    def bounds_text(self) -> str:
        """The bounds in words; empty without."""
        words = {Gt: "above", Ge: "at least", Lt: "below", Le: "at most"}
        found = [(word, self.declared.bound(kind)) for kind, word in words.items()]
        return ", ".join(f"{word} {bound:g}" for word, bound in found if bound is not None)


@cache
def all_fields() -> tuple[SpecField, ...]:
    """The fields of a spec, section after section; without version and grid, which are of documents."""
    usual = Spec()
    document = usual.model_dump()
    return tuple(
        SpecField(f"{section}.{name}" if section else name, field, (document[section] if section else document)[name])
        for section in SECTIONS
        for name, field in declared(type(getattr(usual, section)) if section else Spec).items()
        if (section, name) != ("devices", "samples")  # which are the task's
    )


def in_words(spec: Spec, seeds: int) -> str:
    """What runs are of, in one line: the cell, what is not at its default, the task and the limits.

    Args:
        spec: one of them.
        seeds: how many they have.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.sim.spec_fields import in_words
        >>> in_words(fc.Spec(slack=2.0, cell={"csi_error_db": 3.0}), seeds=5)
        '20 devices · 1400 m · 3 MHz · slack 2 · SNR error 3 dB · mnist labels:2 · 450 s · 5 seeds'
    """
    document = flat(spec.model_dump(exclude={"grid", "version"}))
    odd = [one.in_words(document[one.path]) for one in all_fields() if one.path not in _ALWAYS_SAID]
    limits = {"s": spec.budget_s, "rounds": spec.rounds, "J": spec.budget_j}
    return " · ".join(
        [
            _plural(spec.devices.count, "device"),
            f"{spec.cell.radius_m:g} m",
            f"{spec.cell.bandwidth_hz / 1e6:g} MHz",
            *(words for words in odd if words),
            f"{spec.task.data} {spec.task.partition}",
            *(f"{limit:g} {unit}" for unit, limit in limits.items() if limit is not None and limit < math.inf),
            _plural(seeds, "seed"),
        ]
    )


_ALWAYS_SAID = {
    "policy",
    "seed",
    "budget_s",
    "budget_j",
    "rounds",
    "cell.radius_m",
    "cell.bandwidth_hz",
    "devices.count",
}
_ALWAYS_SAID |= {"task.data", "task.partition"}


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """A spec's document with nested fields named by a dot."""
    return {
        path: inner
        for name, value in document.items()
        for path, inner in (
            [(f"{name}.{n}", v) for n, v in value.items()] if isinstance(value, dict) else [(name, value)]
        )
    }
