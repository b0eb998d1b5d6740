from pathlib import Path

import pytest

from twins.small import write_small_npz


@pytest.fixture(scope="session")
def small_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set small enough for a sweep of many runs."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    write_small_npz(path)
    return path
