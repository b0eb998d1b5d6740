"""All figures and tables by the names that the command line gives them."""

from collections.abc import Callable, Sequence

from fedcell.errors import InputError, did_you_mean
from fedcell.paper import calibration, csi, diverse, fig1a, fig1b, fig2, fig3, fig3d, table1
from fedcell.paper.output import Output
from fedcell.paper.settings import Collect, Settings

FIGURES: dict[str, Callable[[Settings, Collect], Output]] = {
    "fig1a": fig1a.make,
    "fig1b": fig1b.make,
    "fig2": fig2.make,
    "table1": table1.make,
    "fig3a": fig3.make_a,
    "fig3b": fig3.make_b,
    "fig3c": fig3.make_c,
    "fig3d": fig3d.make,
    "calibration": calibration.make,
    "diverse": diverse.make_table,
    "variants": diverse.make_variants,
    "privacy": diverse.make_privacy,
    "epochs": diverse.make_epochs,
    "csi": csi.make,
}


def chosen(names: Sequence[str]) -> list[str]:
    """The figures asked for, in the paper's order; all of them for ``all`` or nothing."""
    for name in names:
        if name not in (*FIGURES, "all"):
            raise InputError(f"there is no figure {name[:60]!r}; {did_you_mean(name, (*FIGURES, 'all'))}")
    return [name for name in FIGURES if name in names or "all" in names or not names]
