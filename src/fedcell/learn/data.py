"""The data sets: MNIST (included), Fashion-MNIST, and your own arrays.

Every source ends in one :class:`Dataset`, checked in one place: shapes, labels, finite values. Files from outside are
read with size limits and without pickles. Published files must have their published content: the SHA-256 is that of
the uncompressed file, so a recompressed copy, such as Debian's, is accepted too.
"""

import hashlib
import itertools
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from fedcell.check import did_you_mean
from fedcell.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

SCALINGS = ("standard", "unit")
IDX_FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
FIELDS = tuple(IDX_FILES)
IDX_MAGIC = (b"\0\0\x08\x01", b"\0\0\x08\x03")  # bytes in one dimension (labels) and in three (images)
BLOCK_BYTES = 1 << 20
MAX_ARRAY_BYTES = 2 << 30
MAX_DOWNLOAD_BYTES = 64 << 20
MAX_CLASSES = 1 << 16
MNIST_FOLDER = Path(__file__).parent / "mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FASHION_URL = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"
FILE_ERRORS = (OSError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set of N and a test set of K labelled samples.

    Attributes:
        name: ``mnist``, ``fashion-mnist``, or the name of your file without its extension.
        train_x: (N, *shape), uint8 or float32.
        train_y: (N,), int64, each 0..classes-1.
        test_x: (K, *shape), of the same type as ``train_x``.
        test_y: (K,), int64, each 0..classes-1.
        classes: the number of labels.
        shift: the network's input is ``(x/255 - shift)/scale`` for uint8, and ``(x - shift)/scale`` for float32.
        scale: see ``shift``.

    Example:
        >>> from fedcell.learn.data import load_dataset
        >>> mnist = load_dataset("mnist")
        >>> mnist.train_x.shape, mnist.test_y.shape, mnist.classes
        ((60000, 28, 28), (10000,), 10)
    """

    name: str
    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int
    shift: float
    scale: float


@dataclass(frozen=True)
class Published:
    """The usual scaling of a published data set, and the SHA-256 of its uncompressed idx files."""

    shift: float
    scale: float
    sha256: Mapping[str, str]


PUBLISHED = {
    "mnist": Published(
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
        shift=0.2860,
        scale=0.3530,
        sha256={
            "train_x": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_y": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_x": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_y": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def load_dataset(
    name_or_path: str | os.PathLike[str],
    scaling: str = "standard",
    *,
    folder: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load a data set by name, or your own from a file.

    Args:
        name_or_path: ``mnist``; ``fashion-mnist``; an ``.npz`` file with the arrays ``train_x``, ``train_y``,
            ``test_x`` and ``test_y`` (and, if some label never occurs, the number ``classes``); or a directory
            with the four idx files under MNIST's names, plain or ``.gz``.
        scaling: ``standard`` (the usual mean and standard deviation of the data set; for your own arrays those of
            ``train_x``) or ``unit`` (uint8 becomes [0, 1], floats are not changed).
        folder: the directory with the four files of a named data set. Without it, ``mnist`` comes from the package, and
            ``fashion-mnist`` from the first of these: the directory ``$FEDCELL_DATA`` or its subdirectory
            ``fashion-mnist``, if that variable is set; Debian's package ``dataset-fashion-mnist``; the cache;
            a download into the cache.

    Returns:
        Dataset: the checked arrays and their scaling.

    Example:
        >>> from fedcell.learn.data import load_dataset
        >>> load_dataset("mnist").shift, load_dataset("mnist", "unit").shift
        (0.1307, 0.0)
    """
    if scaling not in SCALINGS:
        raise InputError(f"scaling is {scaling!r}; give {' or '.join(SCALINGS)}")
    name = os.fspath(name_or_path)
    usual = PUBLISHED.get(name)
    if usual is not None:
        source = _published_folder(name) if folder is None else _existing_folder(folder)
        dataset = _checked(name, source, _read_folder(source, usual.sha256))
    elif folder is not None:
        raise InputError(f"folder is given with the data set {name!r}; leave it out: only published data sets take it")
    else:
        source = Path(name).expanduser()
        dataset = _checked(source.resolve().stem, source, _read_own(source))
    if scaling == "unit":
        return dataset
    shift, scale = _measured(dataset.train_x, source) if usual is None else (usual.shift, usual.scale)
    return replace(dataset, shift=shift, scale=scale)


def read_idx(path: Path, sha256: str | None = None, origin: str | None = None) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, plain or ``.gz``, into an array of the shape its header declares.

    Reading stops when the declared size is exceeded, so that a small malicious file cannot fill the memory.

    Args:
        path: the file.
        sha256: the expected SHA-256 of its uncompressed content, in hex; None accepts any.
        origin: what error messages call the file; by default its path.

    Returns:
        The content, of the shape that the header declares.
    """
    name = origin or str(path)
    try:
        blocks = _blocks(path)
        first = next(blocks, b"")
        magic = first[:4]
        if magic not in IDX_MAGIC:
            raise InputError(f"{name} starts with {magic.hex()!r} and is not an idx file; download it again")
        if len(first) < 4 + 4 * magic[3]:
            raise InputError(f"{name} ends within its header; download it again")
        header, rest = first[: 4 + 4 * magic[3]], first[4 + 4 * magic[3] :]
        shape = tuple(int(length) for length in np.frombuffer(header, ">u4", offset=4))
        size = math.prod(shape)
        if size > MAX_ARRAY_BYTES:
            raise InputError(f"{name} declares {size} bytes, over {MAX_ARRAY_BYTES}; use a smaller file")
        array = np.empty(size, np.uint8)
        digest, filled = hashlib.sha256(header), 0
        for block in itertools.chain([rest], blocks):
            if filled + len(block) > size:
                raise InputError(f"{name} declares {size} bytes but has more; download it again")
            array[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
            digest.update(block)
            filled += len(block)
    except FILE_ERRORS as error:
        raise InputError(f"{name} cannot be read ({error}); download it again") from error
    if filled < size:
        raise InputError(f"{name} declares {size} bytes but has only {filled}; download it again")
    if sha256 is not None and digest.hexdigest() != sha256:
        raise InputError(f"{name} has the SHA-256 {digest.hexdigest()}, not {sha256}; download it again")
    return array.reshape(shape)


def _blocks(path: Path) -> Iterator[bytes]:
    """The file's uncompressed content in blocks of at most 1 MiB (gzip.open takes a third longer)."""
    with open(path, "rb") as file:
        if path.suffix != ".gz":
            yield from iter(lambda: file.read(BLOCK_BYTES), b"")
            return
        unzip = zlib.decompressobj(wbits=31)
        while not unzip.eof:
            compressed = unzip.unconsumed_tail or file.read(BLOCK_BYTES // 8)
            block = unzip.decompress(compressed, BLOCK_BYTES)
            if not compressed and not block:
                raise EOFError("it ends too early")
            yield block


def _read_folder(folder: Path, sha256: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    paths = {field: folder / f"{file}.gz" for field, file in IDX_FILES.items()}
    for field, path in paths.items():
        if not path.exists():
            paths[field] = path.with_suffix("")
        if not paths[field].exists():
            raise InputError(f"{folder} has no file {path.name} ({field}); put the four idx files there")
    with ThreadPoolExecutor() as pool:  # zlib and hashlib release the interpreter lock
        arrays = pool.map(lambda field: read_idx(paths[field], sha256.get(field)), FIELDS)
        return dict(zip(FIELDS, arrays, strict=True))


def _existing_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"the data directory {str(path)!r} does not exist; give one with the idx files")
    return path


def _published_folder(name: str) -> Path:
    if name == "mnist":
        return MNIST_FOLDER
    if given := os.environ.get("FEDCELL_DATA"):
        root = _existing_folder(given)
        return root / name if (root / name).is_dir() else root
    if DEBIAN_FOLDER.is_dir():
        return DEBIAN_FOLDER
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedcell" / name
    if not all((cache / f"{file}.gz").exists() for file in IDX_FILES.values()):
        download_fashion_mnist(cache, FASHION_URL)
    return cache


def download_fashion_mnist(folder: Path, url: str) -> None:
    """Download the four ``.gz`` files of Fashion-MNIST into a directory: all of them, checked, or none.

    Args:
        folder: the directory for the files, created if necessary; they are moved there once all are checked.
        url: the address of the directory with the files; https, or http on this machine.
    """
    from http.client import HTTPException

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    sha256 = PUBLISHED["fashion-mnist"].sha256
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as temporary,
            Progress(*columns, console=Console(stderr=True)) as progress,
        ):
            paths = [Path(temporary, f"{file}.gz") for file in IDX_FILES.values()]
            for field, path in zip(FIELDS, paths, strict=True):
                _download(f"{url}/{path.name}", path, progress)
                read_idx(path, sha256[field], origin=f"{url}/{path.name}")
            folder.mkdir(exist_ok=True)
            for path in paths:
                path.replace(folder / path.name)
    except (OSError, HTTPException) as error:
        raise InputError(
            f"Fashion-MNIST cannot be downloaded from {url} to {folder} ({error}); check the network, "
            "install Debian's dataset-fashion-mnist, or set FEDCELL_DATA to a directory with the files"
        ) from error


def _download(url: str, path: Path, progress: "Progress") -> None:
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
            raise InputError(f"{url} is over {MAX_DOWNLOAD_BYTES} bytes and not Fashion-MNIST; give another address")


def _demand_https(url: str) -> None:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
    if parts.scheme != "https" and not local:
        raise InputError(f"the download goes to {url!r}; give an https address")


def _read_own(path: Path) -> dict[str, NDArray[Any]]:
    if path.is_dir():
        return _read_folder(path, {})
    if path.suffix == ".npz":
        return _read_npz(path)
    hint = did_you_mean(str(path), PUBLISHED, f"give {', '.join(PUBLISHED)}, an .npz file or a directory")
    raise InputError(f"unknown data set {str(path)!r}; {hint}")


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"the data set {str(path)!r} does not exist; give an .npz file")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz file; write it with numpy.savez_compressed")
    arrays = {}
    field = "the archive"
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile reads no more than the declared sizes, whatever the compressed data contains.
            size = sum(entry.file_size for entry in archive.infolist())
        with np.load(path, allow_pickle=False) as members:
            for field in (*FIELDS, "classes") if size <= MAX_ARRAY_BYTES else ():
                if field in members:
                    arrays[field] = np.asarray(members[field])
    except (*FILE_ERRORS, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: {field} cannot be read ({error}); store plain arrays of numbers, never Python objects"
        ) from error
    if size > MAX_ARRAY_BYTES:
        raise InputError(f"{path} unpacks to {size} bytes, over {MAX_ARRAY_BYTES}; store less, or as uint8")
    for field in FIELDS:
        if field not in arrays:
            raise InputError(f"{path} has no array {field!r}; it needs {', '.join(FIELDS)}")
    return arrays


def _checked(name: str, source: Path, arrays: Mapping[str, NDArray[Any]]) -> Dataset:
    """Return the arrays as an unscaled data set, after all checks that do not depend on their source."""
    train_x = _checked_samples(arrays["train_x"], f"{source}: train_x")
    test_x = _checked_samples(arrays["test_x"], f"{source}: test_x")
    if (train_x.shape[1:], train_x.dtype) != (test_x.shape[1:], test_x.dtype):
        raise InputError(
            f"{source}: train_x has samples of shape {train_x.shape[1:]} and type {train_x.dtype}, test_x of "
            f"{test_x.shape[1:]} and {test_x.dtype}; give both the same shape and type"
        )
    classes = _class_count(arrays, source)
    train_y = _checked_labels(arrays["train_y"], classes, f"{source}: train_y")
    test_y = _checked_labels(arrays["test_y"], classes, f"{source}: test_y")
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            counts = f"{part}_x has {len(x)} samples, {part}_y {len(y)} labels"
            raise InputError(f"{source}: {counts}; give one label for each sample")
    return Dataset(name, train_x, train_y, test_x, test_y, classes, shift=0.0, scale=1.0)


def _checked_samples(x: NDArray[Any], field: str) -> NDArray[Any]:
    if x.ndim < 2 or x.size == 0:
        raise InputError(f"{field} has the shape {x.shape}; give (samples, features) or one image per sample")
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind != "f":
        raise InputError(f"{field} has the type {x.dtype}; give uint8 (0 to 255) or floats")
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(x, np.float32)
        # In double precision a sum of float32 values is finite exactly if all of them are.
        wrong = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1).sum(axis=1, dtype=np.float64)))
    if wrong.size:
        raise InputError(f"{field}[{wrong[0]}] has a value that is NaN or exceeds float32; correct the sample")
    return x


def _class_count(arrays: Mapping[str, NDArray[Any]], source: Path) -> int:
    """Return the number of labels: as given, or those of the training set, numbered without gaps."""
    given = arrays.get("classes")
    if given is not None:
        if given.ndim or given.dtype.kind not in "iu" or not 1 <= given <= MAX_CLASSES:
            raise InputError(f"{source}: classes is {given}; give one integer from 1 to {MAX_CLASSES}")
        return int(given)
    held = np.unique(arrays["train_y"])
    if held.dtype.kind not in "iu" or not held.size or held[0] < 0:
        return 1  # the check of the labels says what is wrong
    gaps = np.flatnonzero(held != np.arange(len(held)))
    if gaps.size:
        raise InputError(
            f"{source}: train_y has no label {gaps[0]} but goes up to {held[-1]}; number the labels from 0 "
            "without gaps, or store the number of labels as the array classes"
        )
    return len(held)


def _checked_labels(y: NDArray[Any], classes: int, field: str) -> NDArray[np.int64]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not y.size:
        raise InputError(f"{field} has the shape {y.shape} and type {y.dtype}; give one integer per sample")
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if wrong.size:
        raise InputError(f"{field}[{wrong[0]}] is {y[wrong[0]]}; give labels from 0 to {classes - 1}")
    return y.astype(np.int64)


def _measured(train_x: NDArray[Any], source: Path) -> tuple[float, float]:
    """Return mean and standard deviation of the training set before scaling, in blocks to save memory."""
    unit = 255.0 if train_x.dtype == np.uint8 else 1.0
    mean = np.float64(train_x.mean(dtype=np.float64))
    blocks = (train_x[start : start + 1024] for start in range(0, len(train_x), 1024))
    deviation = math.sqrt(sum(float(np.square(block - mean).sum()) for block in blocks) / train_x.size)
    if deviation <= 1e-12 * abs(mean):
        raise InputError(f"{source}: train_x is {mean:g} everywhere; give other samples, or scaling 'unit'")
    return float(mean) / unit, deviation / unit
