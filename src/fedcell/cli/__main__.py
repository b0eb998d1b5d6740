"""``python -m fedcell.cli``."""

from fedcell.cli import main

main()
