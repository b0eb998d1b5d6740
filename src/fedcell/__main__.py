"""``python -m fedcell``, the same as ``fedcell``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current directory: a random.py in it would hide Python's own from everything imported below

from fedcell.cli import main

main()
