"""Link laws: how the uploads of a round share what carries them."""

from fedcell.schedule.laws.base import (
    LAWS,
    MOST_BLOCKS,
    NR_BLOCKS_HZ,
    Blocks,
    Dedicated,
    Density,
    Ingress,
    Law,
    Power,
    format_law,
    parse_law,
    width_note,
)

__all__ = [
    "LAWS",
    "MOST_BLOCKS",
    "NR_BLOCKS_HZ",
    "Blocks",
    "Dedicated",
    "Density",
    "Ingress",
    "Law",
    "Power",
    "format_law",
    "parse_law",
    "width_note",
]
