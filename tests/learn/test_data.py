"""The data sets: real MNIST, Fashion-MNIST from wherever it lies, one's own arrays, and hostile files."""

import contextlib
import gzip
import hashlib
import re
import struct
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import idx_bytes
from fedcell.errors import InputError
from fedcell.learn import published
from fedcell.learn.data import Dataset, _measured, load_dataset
from fedcell.learn.formats import IDX_FILES
from fedcell.learn.published import Published
from harness import traced_peak_bytes

MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def small_arrays(classes: int = 3) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "train_x": rng.integers(0, 256, (12, 4, 4), np.uint8),
        "train_y": (np.arange(12) % classes).astype(np.uint8),
        "test_x": rng.integers(0, 256, (6, 4, 4), np.uint8),
        "test_y": (np.arange(6) % classes).astype(np.uint8),
    }


def write_folder(folder: Path, compressed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for field, array in small_arrays().items():
        content = idx_bytes(array)
        if compressed:
            (folder / f"{IDX_FILES[field]}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / IDX_FILES[field]).write_bytes(content)
    return folder


def write_npz(folder: Path, **changes: Any) -> Path:
    """The small arrays as an .npz; a change of None leaves the array out."""
    path = folder / "own.npz"
    arrays = {**small_arrays(), **changes}
    np.savez_compressed(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def peak_bytes(path: Path, words: str, before: str = "") -> int:
    """The most memory that it takes to refuse a file with these words, in a process of its own."""
    imports = (
        "from pathlib import Path\nfrom fedcell.errors import InputError\nfrom fedcell.learn import data, formats\n"
    )
    code = f"""
try:
    {"data.load_dataset" if path.suffix == ".npz" else "formats.read_idx"}(Path({str(path)!r}))
except InputError as refused:
    assert {words!r} in str(refused), refused
else:
    raise AssertionError("it was read")
"""
    return traced_peak_bytes(imports + before, code)


def assert_small(dataset: Dataset) -> None:
    for field, array in small_arrays().items():
        np.testing.assert_array_equal(getattr(dataset, field), array)
    assert dataset.classes == 3


# MNIST


@pytest.mark.parametrize("name", MD5)
def test_the_shipped_files_are_the_original_ones(name: str) -> None:
    assert hashlib.md5((published.MNIST_FOLDER / name).read_bytes()).hexdigest() == MD5[name]


def test_the_shipped_files_come_with_their_licence() -> None:
    note = (published.MNIST_FOLDER / "README.md").read_text()
    assert "CC BY-SA 3.0" in note
    assert "Yann LeCun" in note
    assert "Corinna Cortes" in note
    assert all(md5 in note for md5 in MD5.values())


def test_mnist_is_mnist() -> None:
    mnist = load_dataset("mnist")
    assert (mnist.name, mnist.classes, mnist.shift, mnist.scale) == ("mnist", 10, 0.1307, 0.3081)
    assert mnist.train_x.shape == (60000, 28, 28)
    assert mnist.test_x.shape == (10000, 28, 28)
    assert mnist.train_x.dtype == mnist.test_x.dtype == np.uint8
    assert mnist.train_y.dtype == mnist.test_y.dtype == np.int64
    assert mnist.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test_y[:5].tolist() == [7, 2, 1, 0, 4]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.train_y).tolist() == counts
    assert abs((mnist.train_x == 0).mean() - 0.81) < 0.005
    measured = load_dataset(published.MNIST_FOLDER)  # the same files as if they were the user's own
    assert (measured.shift, measured.scale) == pytest.approx((mnist.shift, mnist.scale), abs=1e-4)
    assert mnist.train_x.flags.writeable  # torch.from_numpy warns of arrays that are not
    assert mnist.train_x.flags.c_contiguous


def test_unit_scaling_leaves_pixels_in_0_to_1() -> None:
    mnist = load_dataset("mnist", "unit")
    assert (mnist.shift, mnist.scale) == (0.0, 1.0)


def test_an_unknown_scaling_is_named() -> None:
    with pytest.raises(InputError, match=r"scaling is 'minmax'; give standard or unit"):
        load_dataset("mnist", "minmax")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mnits", "did you mean 'mnist'"),
        ("fashion", "did you mean 'fashion-mnist'"),
        ("cifar", "did you mean 'cifar-10"),
        ("imagenet", "an .npz file or"),
    ],
)
def test_an_unknown_name_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"unknown data set '{name}'; .*{hint}"):
        load_dataset(name)


# Fashion-MNIST: the small files below stand in for the real ones, under their own checksums.


def served_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """From now on the small files are Fashion-MNIST, to be had at this address."""
    sha256 = {field: hashlib.sha256(idx_bytes(array)).hexdigest() for field, array in small_arrays().items()}
    small = Published("Fashion-MNIST", sha256, url, 0.2860, 0.3530)
    monkeypatch.setitem(published.PUBLISHED, "fashion-mnist", small)


@pytest.fixture
def fashion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No environment, no Debian package, an empty cache below the returned folder, and small checksums."""
    served_at(monkeypatch, "http://127.0.0.1:9")  # nobody answers on port 9
    monkeypatch.setattr(published, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.delenv("FEDCELL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist_from_a_given_folder(fashion: Path, compressed: bool) -> None:
    dataset = load_dataset("fashion-mnist", folder=write_folder(fashion / "here", compressed))
    assert_small(dataset)
    assert (dataset.name, dataset.shift, dataset.scale) == ("fashion-mnist", 0.2860, 0.3530)


@pytest.mark.parametrize("inside", ["", "fashion-mnist"])
def test_fashion_mnist_from_the_environment(
    fashion: Path,
    monkeypatch: pytest.MonkeyPatch,
    inside: str,
) -> None:
    write_folder(fashion / "data" / inside)
    monkeypatch.setenv("FEDCELL_DATA", str(fashion / "data"))
    assert_small(load_dataset("fashion-mnist"))


def test_fashion_mnist_from_debians_package(fashion: Path) -> None:
    write_folder(fashion / "debian")
    assert_small(load_dataset("fashion-mnist"))


def test_fashion_mnist_from_the_cache(fashion: Path) -> None:
    write_folder(fashion / "cache" / "fedcell" / "fashion-mnist")
    assert_small(load_dataset("fashion-mnist"))


@pytest.mark.skipif(not published.DEBIAN_FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCELL_DATA", raising=False)
    dataset = load_dataset("fashion-mnist")
    assert dataset.train_x.shape == (60000, 28, 28)
    assert np.bincount(dataset.train_y).tolist() == [6000] * 10
    measured = load_dataset(published.DEBIAN_FOLDER)  # the same files as if they were the user's own
    assert (measured.shift, measured.scale) == pytest.approx((dataset.shift, dataset.scale), abs=1e-4)


def test_a_missing_folder_or_file_is_named(fashion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"the data directory '.*nowhere' does not exist; give one with"):
        load_dataset("fashion-mnist", folder=fashion / "nowhere")
    monkeypatch.setenv("FEDCELL_DATA", str(fashion / "elsewhere"))
    with pytest.raises(InputError, match=r"the data directory '.*elsewhere' does not exist"):
        load_dataset("fashion-mnist")
    (write_folder(fashion / "here") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"here has no file t10k-labels-idx1-ubyte.gz \(test_y\); put the four"):
        load_dataset("fashion-mnist", folder=fashion / "here")
    with pytest.raises(InputError, match=r"folder is given with the data set 'own.npz'"):
        load_dataset("own.npz", folder=fashion)


def test_other_content_has_another_checksum(fashion: Path) -> None:
    path = write_folder(fashion / "here") / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(12, np.uint8))))
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.gz has the SHA-256 [0-9a-f]{64}, not "):
        load_dataset("fashion-mnist", folder=fashion / "here")


# The download, from a real server on this machine


class Server(ThreadingHTTPServer):
    """Serves the small files; the first part of the path says what goes wrong."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.files: dict[str, bytes] = {}
        self.sent_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        _, fault, name = self.path.split("/")
        content = self.server.files[name]
        last = name.startswith("t10k-labels")  # three good files are there by then
        if last and fault == "missing":
            return self.send_error(404)
        if last and fault == "moved":
            self.send_response(302)
            self.send_header("Location", f"http://127.1:{self.server.server_port}/good/{name}")
            return self.end_headers()
        if last and fault == "changed":
            content = gzip.compress(idx_bytes(np.zeros(6, np.uint8)))
        if last and fault == "page":
            content = b"<html>please log in</html>"
        self.send_response(200)
        if fault != "endless":
            self.send_header("Content-Length", str(10**9 if last and fault == "large" else len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if last and fault == "cut" else content)
        if last and fault == "endless":
            with contextlib.suppress(ConnectionError):
                while self.server.sent_bytes < 200 << 20:
                    self.server.sent_bytes += self.wfile.write(bytes(1 << 16))
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(fashion: Path) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        for field, array in small_arrays().items():
            running.files[f"{IDX_FILES[field]}.gz"] = gzip.compress(idx_bytes(array))
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_fashion_mnist_is_downloaded_once(
    fashion: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served_at(monkeypatch, f"{server.url}/good")
    assert_small(load_dataset("fashion-mnist"))
    assert "train-images-idx3-ubyte.gz" in capsys.readouterr().err  # the progress bar
    files = sorted(path.name for path in (fashion / "cache").rglob("*") if path.is_file())
    assert files == sorted(MD5)
    assert not list((fashion / "cache").rglob(".download-*"))
    served_at(monkeypatch, "http://127.0.0.1:9")
    assert_small(load_dataset("fashion-mnist"))


def test_a_damaged_cache_is_completed(fashion: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    served_at(monkeypatch, f"{server.url}/good")
    (write_folder(fashion / "cache" / "fedcell" / "fashion-mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    assert_small(load_dataset("fashion-mnist"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "missing",
            r"cannot be downloaded from .* \(HTTP Error 404.*\); check the network, install Debian's",
        ),
        ("moved", r"the download goes to 'http://127.1:.*'; give an https address"),
        ("changed", r"changed/t10k-labels-idx1-ubyte.gz has the SHA-256 [0-9a-f]{64}, not "),
        ("page", r"t10k-labels-idx1-ubyte.gz cannot be read \(.*incorrect header check"),
        ("cut", r"http://127.0.0.1:\d+/cut/t10k-labels-idx1-ubyte.gz ends within its header"),
        ("large", r"t10k-labels-idx1-ubyte.gz is over 100000 bytes and not Fashion-MNIST"),
        ("endless", r"t10k-labels-idx1-ubyte.gz is over 100000 bytes and not Fashion-MNIST"),
    ],
)
def test_a_failed_download_leaves_nothing_behind(
    fashion: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    message: str,
) -> None:
    served_at(monkeypatch, f"{server.url}/{fault}")
    monkeypatch.setattr(published, "MAX_DOWNLOAD_BYTES", 100_000)
    with pytest.raises(InputError, match=message):
        load_dataset("fashion-mnist")
    assert not [path for path in (fashion / "cache").rglob("*") if path.name != "fedcell"]
    assert server.sent_bytes < 50 << 20  # what the sockets hold, but not all that the server would send


def test_without_a_network_the_error_says_what_else_to_do(fashion: Path) -> None:
    with pytest.raises(InputError, match=r"Connection refused.*or set FEDCELL_DATA to a directory"):
        load_dataset("fashion-mnist")


@pytest.mark.parametrize("url", ["http://example.com/x", "ftp://127.0.0.1/x", "file:///etc"])
def test_a_download_must_be_encrypted(fashion: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    served_at(monkeypatch, url)
    with pytest.raises(InputError, match=r"the download goes to '.*'; give an https address"):
        published.download_published("fashion-mnist", fashion / "cache" / "fashion-mnist")


# idx files: see test_formats_idx.py


@pytest.mark.processes
def test_a_gzip_bomb_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x01\0\0\0\x64")
        for _ in range(100):
            file.write(bytes(1 << 20))
    assert peak_bytes(path, "bomb.gz declares 100 bytes but has more") < 4 << 20


# One's own data


def test_own_images_are_scaled_by_their_own_mean_and_deviation(tmp_path: Path) -> None:
    dataset = load_dataset(write_npz(tmp_path))
    assert_small(dataset)
    pixels = small_arrays()["train_x"] / 255
    assert dataset.name == "own"
    assert (dataset.shift, dataset.scale) == pytest.approx((pixels.mean(), pixels.std()), rel=1e-12)
    assert (load_dataset(str(tmp_path / "own.npz"), "unit").scale) == 1.0


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_own_floats_become_float32(tmp_path: Path, kind: Any) -> None:
    rng = np.random.default_rng(1)
    train, test = rng.normal(3, 2, (12, 7)).astype(kind), rng.normal(3, 2, (6, 7)).astype(kind)
    dataset = load_dataset(write_npz(tmp_path, train_x=np.asfortranarray(train), test_x=test))
    assert dataset.train_x.dtype == dataset.test_x.dtype == np.float32
    assert dataset.train_x.flags.c_contiguous
    np.testing.assert_array_equal(dataset.train_x, train.astype(np.float32))
    scaled = (dataset.train_x - dataset.shift) / dataset.scale
    assert scaled.mean() == pytest.approx(0, abs=1e-6)
    assert scaled.std() == pytest.approx(1, abs=1e-6)


def test_a_label_may_be_missing_if_the_number_of_labels_is_given(tmp_path: Path) -> None:
    dataset = load_dataset(write_npz(tmp_path, train_y=np.full(12, 2), test_y=np.full(6, 4), classes=5))
    assert dataset.classes == 5


def test_an_own_folder_of_idx_files(tmp_path: Path) -> None:
    dataset = load_dataset(write_folder(tmp_path / "letters", compressed=False))
    assert_small(dataset)
    assert dataset.name == "letters"
    assert dataset.shift == pytest.approx(small_arrays()["train_x"].mean() / 255)


NAN = np.ones((12, 2))
NAN[7, 1] = np.nan
BOTH_INFINITIES = np.ones((12, 2))
BOTH_INFINITIES[3] = np.inf, -np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, r"has no array 'test_y'; it needs train_x, train_y, test_x, test_y"),
        ({"train_x": np.array([[{}]] * 12)}, r"train_x cannot be read \(Object arrays cannot be loaded"),
        (
            {"train_x": np.zeros((12, 2), np.int32)},
            r"train_x has the type int32; give uint8 \(0 to 255\) or float",
        ),
        ({"train_x": np.zeros((12, 2), complex)}, r"train_x has the type complex128"),
        ({"train_x": np.zeros(12)}, r"train_x has the shape \(12,\); give \(samples, features\)"),
        ({"train_x": np.zeros((0, 4))}, r"train_x has the shape \(0, 4\)"),
        ({"train_x": NAN}, r"train_x\[7\] has a value that is NaN or exceeds float32; correct the sample"),
        ({"train_x": BOTH_INFINITIES}, r"train_x\[3\] has a value that is NaN or exceeds float32"),
        ({"test_x": np.full((6, 2), 1e300)}, r"test_x\[0\] has a value that is NaN or exceeds float32"),
        (
            {"test_x": np.zeros((6, 4, 5), np.uint8)},
            r"shape \(4, 4\) and type uint8, test_x of \(4, 5\) and uint8",
        ),
        ({"test_x": np.zeros((6, 4, 4))}, r"shape \(4, 4\) and type uint8, test_x of \(4, 4\) and float32"),
        (
            {"train_x": np.full((12, 4, 4), 7, np.uint8)},
            r"train_x is 7 everywhere; give other samples, or scaling",
        ),
        (
            {"train_y": np.arange(11) % 3},
            r"train_x has 12 samples, train_y 11 labels; give one label for each",
        ),
        ({"test_y": np.arange(7) % 3}, r"test_x has 6 samples, test_y 7 labels"),
        (
            {"train_y": np.arange(12) % 3 + 1},
            r"train_y has no label 0 but goes up to 3; number the labels from 0",
        ),
        ({"train_y": np.arange(12) % 3 * 2}, r"train_y has no label 1 but goes up to 4"),
        ({"train_y": np.arange(12) % 3 - 1}, r"train_y\[0\] is -1; give labels from 0 to"),
        ({"train_y": np.full(12, 0.5)}, r"train_y has the shape \(12,\) and type float64; give one integer"),
        ({"train_y": np.zeros((12, 1), int)}, r"train_y has the shape \(12, 1\) and type int64"),
        ({"train_y": np.array(["a"] * 12)}, r"train_y has the shape \(12,\) and type <U1"),
        ({"test_y": np.array([0, 1, 2, 0, 3, 1])}, r"test_y\[4\] is 3; give labels from 0 to 2"),
        (
            {"train_y": np.full(12, 2**64 - 1, np.uint64)},
            r"train_y has no label 0 but goes up to 18446744073709551615",
        ),
        ({"classes": 2}, r"train_y\[2\] is 2; give labels from 0 to 1"),
        ({"classes": 0}, r"classes is 0; give one integer from 1 to 65536"),
        ({"classes": [3]}, r"classes is \[3\]; give one integer"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write_npz(tmp_path, **changes)
    with pytest.raises(InputError, match=f"own.npz:? {message}|own.npz: train_x has samples of {message}"):
        load_dataset(path)


def test_what_is_no_npz_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the data set '.*none.npz' does not exist"):
        load_dataset(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("train_x")
    with pytest.raises(InputError, match=r"text.npz is not an .npz file; write it with numpy.savez"):
        load_dataset(tmp_path / "text.npz")
    whole = write_npz(tmp_path).read_bytes()
    damaged = whole.replace(b"\x93NUMPY", b"\x93NUMPI")
    path = tmp_path / "damaged.npz"
    path.write_bytes(bytes(damaged[:60]) + bytes(20) + bytes(damaged[80:]))
    with pytest.raises(InputError, match=r"damaged.npz: train_x cannot be read \(.*\); store plain arrays"):
        load_dataset(path)


@pytest.mark.processes
def test_an_npz_bomb_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = write_npz(tmp_path, train_x=np.zeros((12, 1 << 20), np.uint8))
    assert peak_bytes(path, "bytes, over 1048576; store less", "data.MAX_ARRAY_BYTES = 1 << 20") < 4 << 20


def test_an_array_header_that_lies_is_found(tmp_path: Path) -> None:
    path = write_npz(tmp_path, train_x=None)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 784), }\n"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("train_x.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    with pytest.raises(InputError, match=r"own.npz: train_x cannot be read"):
        load_dataset(path)


def test_data_is_found_where_it_is_and_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCELL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(published, "download_published", None)
    names = ("mnist", "fashion-mnist", "own.npz")
    assert [published.find_data(name) for name in names] == ["mnist", None, None]
    root = tmp_path / "data"
    (root / "fashion-mnist").mkdir(parents=True)
    (root / "below").mkdir()
    (root / "below" / "own.npz").touch()
    monkeypatch.setenv("FEDCELL_DATA", str(root))
    first, *others = published.PUBLISHED["fashion-mnist"].files
    for name in others:
        (root / "fashion-mnist" / name).touch()
    assert [published.find_data(name) for name in names] == ["mnist", None, str(root / "below" / "own.npz")]
    (root / "fashion-mnist" / first.removesuffix(".gz")).touch()
    assert published.find_data("fashion-mnist") == "fashion-mnist"
    (root / "own.npz").touch()
    assert published.find_data("own.npz") == str(root / "own.npz")
    monkeypatch.setenv("FEDCELL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="nowhere' does not exist"):
        published.find_data("own.npz")


def test_a_training_set_that_is_the_same_everywhere_but_for_rounding_has_no_scale() -> None:
    ends = np.array([[-1.0], [1.0]])
    for mean, deviation in ((1e6, 1e-7), (-1e6, 1e-7), (0.0, 0.0), (1e-3, 1e-16)):
        with pytest.raises(InputError, match=re.escape(f"train_x is {mean:g} everywhere; give other")):
            _measured(mean + deviation * ends, "here")
    for mean, deviation in ((1e6, 1e-5), (0.0, 1e-9), (1e-3, 1e-12)):
        found = _measured(mean + deviation * np.tile(ends, (1500, 1)), "here")
        assert found == pytest.approx((mean, deviation), rel=1e-3, abs=1e-15)
    assert _measured(np.array([[0], [255]], np.uint8), "here") == (0.5, 0.5)
