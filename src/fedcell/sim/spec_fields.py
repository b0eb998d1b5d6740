"""All fields of a spec as they are declared: what options, the page's form and the docs' table are made of."""

from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

from fedcell.fields import About, Declared, declared
from fedcell.sim.spec import Spec

SECTIONS = ("", "cell", "devices", "task")


@dataclass(frozen=True)
class SpecField:
    """A field of a spec.

    Attributes:
        path: its name, with its section: ``cell.radius_m``.
        declared: its type, bounds and choices.
        default: of a Spec, as in its document.
    """

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

    @property
    def bounds_text(self) -> str:
        """The bounds in words; empty without."""
        words = {Gt: "above", Ge: "at least", Lt: "below", Le: "at most"}
        found = [(word, self.declared.bound(kind)) for kind, word in words.items()]
        return ", ".join(f"{word} {bound:g}" for word, bound in found if bound is not None)


def spec_fields() -> list[SpecField]:
    """The fields of a spec, section after section; without version and grid, which are of documents."""
    document = Spec().model_dump()
    return [
        SpecField(f"{section}.{name}" if section else name, field, (document[section] if section else document)[name])
        for section in SECTIONS
        for name, field in declared(type(getattr(Spec(), section)) if section else Spec).items()
        if (section, name) != ("devices", "samples")  # which are the task's
    ]


def fields_table() -> str:
    """The fields as tables in Markdown, for docs/fields.md."""
    lines = list[str]()
    for section in SECTIONS:
        mine = [one for one in spec_fields() if one.path.rpartition(".")[0] == section]
        lines += ["", f"## [{section}]" if section else "## A run", ""]
        lines += ["| field | default | bounds | option | since | what it is |", "|---|---|---|---|---|---|"]
        for one in mine:
            option = f"`--{one.about.option}`" if one.about.option else ""
            cells = [f"`{one.path.rpartition('.')[2]}`", _escaped(one.default_text), one.bounds_text, option]
            lines.append(f"| {' | '.join([*cells, one.about.since, _escaped(one.about.help)])} |")
    return "\n".join(lines[1:]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")
