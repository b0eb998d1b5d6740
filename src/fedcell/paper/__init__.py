"""The paper's figures and tables, made again: each by a function that takes settings and a way to get runs."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from fedcell import lazy_names, names_in
from fedcell.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fedcell.paper.output import Output
    from fedcell.paper.settings import Collect, Settings

FIGURES = {
    "fig1a": "fig1_fig2.make_a",
    "fig1b": "fig1_fig2.make_b",
    "fig2": "fig1_fig2.make_2",
    "table1": "table1.make",
    "fig3a": "fig3.make_a",
    "fig3b": "fig3.make_b",
    "fig3c": "fig3.make_c",
    "fig3d": "fig3.make_d",
    "diverse": "diverse.make_table",
    "variants": "diverse.make_variants",
    "privacy": "diverse.make_privacy",
    "epochs": "diverse.make_epochs",
    "csi": "diverse.make_csi",
    "auto-times": "auto.make_times",
    "auto-accuracy": "auto.make_accuracy",
    "auto-decisions": "auto_apart.make_decisions",
    "auto-hindsight": "auto_apart.make_hindsight",
}
"""By the names that the command line gives them, in the paper's order: which function of which module makes it."""
GROUPS = {
    "all": tuple(name for name in FIGURES if not name.startswith("auto-")),
    "auto": tuple(name for name in FIGURES if name.startswith("auto-")),
}
"""Names for several of them. ``auto`` takes hours, so it is not part of ``all``."""


def make_figure(name: str, settings: "Settings", collect: "Collect") -> "Output":
    """Make one of FIGURES."""
    module, _, function = FIGURES[name].partition(".")
    make: Callable[[Settings, Collect], Output] = getattr(import_module(f"fedcell.paper.{module}"), function)
    return make(settings, collect)


def chosen(names: Sequence[str]) -> list[str]:
    """The figures asked for, in the paper's order, those of ``all`` for nothing; GROUPS are several."""
    known = (*FIGURES, *GROUPS)
    for name in names:
        if name not in known:
            raise InputError(f"there is no figure {name[:60]!r}; {did_you_mean(name, known)}")
    asked = {figure for name in names or ["all"] for figure in GROUPS.get(name, (name,))}
    return [name for name in FIGURES if name in asked]


_NAMES = {
    "fedcell.paper.auto": "checked_cells",
    "fedcell.paper.output": "Output Section TRIED page section verdict_text",
    "fedcell.paper.settings": "Settings WatchProgress collect_runs gather",
}
__getattr__ = lazy_names("fedcell.paper", _NAMES)
__all__ = names_in(_NAMES, "FIGURES", "GROUPS", "chosen", "make_figure")
