"""An old commit beside this tree, for benchmarks that measure both in one run."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def old_tree(commit: str) -> Iterator[Path]:
    """A commit in a git worktree of its own, in an empty folder that has room for more; both are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), commit], check=True)
        try:
            yield old
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


def printed(tree: Path, code: str, *words: str) -> str:
    """What a program prints that imports the package of this tree, with one thread."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = os.environ | single | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-W", "ignore", "-c", code, *words]
    return subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True).stdout
