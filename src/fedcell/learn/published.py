"""Published data sets: their SHA-256 sums, where their files are looked for, and their download.

The SHA-256 of an idx file is that of its uncompressed content, so a recompressed copy, such as Debian's, is accepted
too; that of an archive is the archive's own.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.learn.formats import FIELDS, IDX_FILES, read_archive, read_folder, read_idx

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_DOWNLOAD_BYTES = 200 << 20
MNIST_FOLDER = Path(__file__).parent / "mnist"
DATA_VARIABLE = "FEDCELL_DATA"
"""The environment variable with the directory of data that the package does not have."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class Published:
    """A published data set.

    Attributes:
        title: its name in messages.
        sha256: sums of its files: four uncompressed idx files by their field, or one archive by its name.
        url: of the directory with the files.
        shift: the usual mean of the scaled inputs; None for that of the training set.
        scale: the usual standard deviation of the scaled inputs; None for that of the training set.
    """

    title: str
    sha256: Mapping[str, str]
    url: str = ""
    shift: float | None = None
    scale: float | None = None

    @property
    def files(self) -> dict[str, str]:
        """Names of the files, each with its SHA-256."""
        if tuple(self.sha256) == FIELDS:
            return {f"{IDX_FILES[field]}.gz": sha256 for field, sha256 in self.sha256.items()}
        return dict(self.sha256)

    def read(self, folder: Path) -> dict[str, NDArray[Any]]:
        """Return the arrays of the data set in a directory; its files must have the published SHA-256 sums."""
        if tuple(self.sha256) == FIELDS:
            return read_folder(folder, self.sha256)
        [(name, sha256)] = self.sha256.items()
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no file {name}; put it there, from {self.url}")
        _check_file(folder / name, sha256)
        return read_archive(folder / name)


PUBLISHED = {
    "mnist": Published(
        title="MNIST",
        shift=0.1307,
        scale=0.3081,
        sha256={
            "train_x": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train_y": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test_x": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test_y": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": Published(
        title="Fashion-MNIST",
        url="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
        shift=0.2860,
        scale=0.3530,
        sha256={
            "train_x": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_y": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_x": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_y": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
    "cifar-10": Published(
        title="CIFAR-10",
        url="https://www.cs.toronto.edu/~kriz",
        sha256={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
    "cifar-100": Published(
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz",
        sha256={"cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
    ),
}


def _check_file(path: Path, sha256: str, origin: str | None = None) -> None:
    """Raise an InputError unless a file has this SHA-256; ``origin`` is what the message calls it."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise InputError(f"{origin or path} has the SHA-256 {found}, not {sha256}; download it again")


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a directory that the user named; an InputError if it does not exist."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"the data directory {str(path)!r} does not exist; give one with the files of the data set")
    return path


def _local_folder(name: str) -> Path | None:
    """The directory with the files of a published data set as far as it is known without a download."""
    if name == "mnist":
        return MNIST_FOLDER
    if given := os.environ.get(DATA_VARIABLE):
        root = existing_folder(given)
        return root / name if (root / name).is_dir() else root
    if name == "fashion-mnist" and DEBIAN_FOLDER.is_dir():
        return DEBIAN_FOLDER
    cache = _cache(name)
    return cache if all((cache / file).exists() for file in PUBLISHED[name].files) else None


def _cache(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedcell" / name


def published_folder(name: str) -> Path:
    """Return the directory with the files of a published data set, which are downloaded if they are nowhere."""
    found = _local_folder(name)
    if found is None:
        found = _cache(name)
        download_published(name, found)
    return found


def find_data(name: str) -> str | None:
    """What ``task.data`` calls data that is on this machine; None for what is not, for nothing is downloaded.

    Args:
        name: of a published data set, or of a file in the directory that FEDCELL_DATA names, or in a directory there.
    """
    if name in PUBLISHED:  # by its name, so that its content is checked
        folder, files = _local_folder(name), PUBLISHED[name].files
        plain = [(file, file.removesuffix(".gz")) for file in files]
        there = folder is not None and all(any((folder / one).is_file() for one in both) for both in plain)
        return name if there else None
    if not (given := os.environ.get(DATA_VARIABLE)):
        return None
    root = existing_folder(given)
    places = [root / name, *(folder / name for folder in sorted(root.iterdir()) if folder.is_dir())]
    return next((str(place.absolute()) for place in places if place.is_file()), None)


def download_published(name: str, folder: Path) -> None:
    """Download the files of a data set into a directory: all of them, checked, or none.

    Args:
        name: of the data set; its address must be https, or http on this machine.
        folder: the directory for the files, created if necessary; they are moved there once all are checked.
    """
    from http.client import HTTPException

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    published = PUBLISHED[name]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as temporary,
            Progress(*columns, console=Console(stderr=True)) as progress,
        ):
            for file, sha256 in published.files.items():
                path, origin = Path(temporary, file), f"{published.url}/{file}"
                _download(origin, path, progress, published.title)
                if tuple(published.sha256) == FIELDS:
                    read_idx(path, sha256, origin=origin)
                else:
                    _check_file(path, sha256, origin)
            folder.mkdir(exist_ok=True)
            for path in Path(temporary).iterdir():
                path.replace(folder / path.name)
    except (OSError, HTTPException) as error:
        debian = "install Debian's dataset-fashion-mnist, " if name == "fashion-mnist" else ""
        raise InputError(
            f"{published.title} cannot be downloaded from {published.url} to {folder} ({error}); check the network, "
            f"{debian}or set FEDCELL_DATA to a directory with the files"
        ) from error


def _download(url: str, path: Path, progress: "Progress", title: str) -> None:
    from urllib.request import urlopen

    _demand_https(url)
    with urlopen(url, timeout=30) as response, open(path, "wb") as file:
        _demand_https(response.url)  # where the redirections led
        length = int(response.headers.get("Content-Length") or 0)
        task = progress.add_task(path.name, total=length or None)
        while max(length, file.tell()) <= MAX_DOWNLOAD_BYTES and (block := response.read(1 << 16)):
            file.write(block)
            progress.update(task, completed=file.tell())
        if max(length, file.tell()) > MAX_DOWNLOAD_BYTES:
            raise InputError(f"{url} is over {MAX_DOWNLOAD_BYTES} bytes and not {title}; give another address")


def _demand_https(url: str) -> None:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
    if parts.scheme != "https" and not local:
        raise InputError(f"the download goes to {url!r}; give an https address")
