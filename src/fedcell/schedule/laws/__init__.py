"""Link laws: how the uploads of a round share what carries them.

A law is a file of this package and a line of `LAWS`, or a class of a user's own, named ``module:Class``; installed
packages register theirs by the entry-point group ``fedcell.laws``.
"""

from typing import TYPE_CHECKING

from fedcell import lazy_names, settings

if TYPE_CHECKING:
    from fedcell.schedule.laws.base import Law, setting
    from fedcell.schedule.laws.blocks import Blocks
    from fedcell.schedule.laws.dedicated import Dedicated
    from fedcell.schedule.laws.density import Density
    from fedcell.schedule.laws.ingress import Ingress
    from fedcell.schedule.laws.power import Power
    from fedcell.schedule.laws.solver import Needs, register

__all__ = [
    "LAWS",
    "Blocks",
    "Dedicated",
    "Density",
    "Ingress",
    "Law",
    "Needs",
    "Power",
    "format_law",
    "parse_law",
    "register",
    "setting",
]

LAWS = settings.Registry["Law"](
    "law",
    {
        "density": "fedcell.schedule.laws.density:Density",
        "blocks": "fedcell.schedule.laws.blocks:Blocks",
        "power": "fedcell.schedule.laws.power:Power",
        "dedicated": "fedcell.schedule.laws.dedicated:Dedicated",
        "ingress": "fedcell.schedule.laws.ingress:Ingress",
    },
    positional=lambda kind: [field.name for field in settings.settable(kind)][:1],
    base="fedcell.schedule.laws.base:Law",
    advice="subclass fedcell.Law and define needs()",
    group="fedcell.laws",
)
"""Link laws by name. A new law is one class in a file of its own and one line here."""

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        "fedcell.schedule.laws",
        {
            "fedcell.schedule.laws.base": "Law setting",
            "fedcell.schedule.laws.solver": "Needs register",
            **{module: name for module, _, name in (place.partition(":") for place in LAWS.places.values())},
        },
    )


def parse_law(text: str, *, allow_import: bool = True) -> "Law":
    """Return the link law that a string such as ``blocks:count=15`` describes, as on the command line and in TOML.

    Args:
        text: ``density``, ``blocks:count=15``, ``power``, ``dedicated`` or ``ingress:bits_per_s=1e7``, or a law of your
            own, ``package.module:Class[:key=value...]``.
        allow_import: whether a law of one's own is allowed, which imports, and so runs, that module. Pass False for
            strings from people who may not run code here.

    Returns:
        The law; ``power`` and ``ingress`` still have to be told the devices' SNR and the size of a model
        (`Law.for_devices`).

    Example:
        >>> import fedcell as fc
        >>> fc.parse_law("blocks:15")
        Blocks(count=15)
    """
    return LAWS.parse(text, allow_import=allow_import)


def format_law(law: "Law") -> str:
    """Return the string from which `parse_law` makes this law.

    Args:
        law: any link law; the SNR of `Power` is not part of the string.

    Returns:
        Such as ``blocks:count=15``.

    Example:
        >>> import fedcell as fc
        >>> fc.format_law(fc.Blocks(15))
        'blocks:count=15'
    """
    return LAWS.format(law)
