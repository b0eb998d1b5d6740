"""Files that a user asked for."""

import os
import stat
import threading
from pathlib import Path

import pytest

from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT, check_output, replace_file, write_output


def text(words: bytes = b"new"):  # type: ignore[no-untyped-def]
    return lambda file: file.write(words)


def test_a_link_stays_and_its_target_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    target, link, chain = tmp_path / "data" / "x.csv", tmp_path / "link.csv", tmp_path / "chain.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("data/x.csv")
    chain.symlink_to(link)
    inode = target.stat().st_ino
    write_output(check_output(chain), text())
    assert (link.is_symlink(), chain.is_symlink(), target.read_text()) == (True, True, "new")
    assert target.stat().st_ino != inode
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    (tmp_path / "dangling").symlink_to(tmp_path / "data" / "y.csv")
    write_output(check_output(tmp_path / "dangling"), text())
    assert (tmp_path / "data" / "y.csv").read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["x.csv", "y.csv"]


def test_devices_and_pipes_are_written_to_and_stay(tmp_path: Path) -> None:
    device, pipe = tmp_path / "null", tmp_path / "pipe"
    device.symlink_to("/dev/null")
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    check_output(pipe)
    write_output(pipe, text())
    reader.join()
    write_output(check_output(device), text())
    assert found == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_standard_output_under_all_its_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    print("first")
    for path in (STANDARD_OUTPUT, Path("/dev/stdout"), Path("/dev/fd/1"), Path("/proc/self/fd/1"), tmp_path / "link"):
        write_output(check_output(path), text(b"x\n"))
    print("last")
    assert capfd.readouterr().out.split() == ["first", *"xxxxx", "last"]
    assert Path("/dev/stdout").is_symlink()


def test_a_full_device_is_one_sentence_and_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"cannot write .*full: No space left on device; give another place"):
        write_output(check_output(tmp_path / "full"), text())

    def half(file):  # type: ignore[no-untyped-def]
        file.write(b"half")
        raise OSError(28, "No space left on device")

    old = tmp_path / "old"
    old.write_text("old")
    with pytest.raises(InputError, match=r"cannot write .*old: No space left on device"):
        write_output(old, half)
    with pytest.raises(OSError, match="No space"):
        replace_file(old, half, sync=True)
    assert old.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "old"]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "no" / "x")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for place, words in (
        (tmp_path / "file" / "x", "file is not a directory; create it first"),
        (tmp_path / "no" / "x", "no is not a directory; create it first"),
        (tmp_path / "gone", "no is not a directory; create it first"),
        (tmp_path, "it is a directory; give the name of a file"),
        (tmp_path / "round", "Too many levels of symbolic links"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "nu\0ll", "null"),
        (Path("/proc/x.png"), "cannot write /proc/x.png"),
        (Path("/dev/fd/987"), "Bad file descriptor"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            check_output(place)
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "gone", "round"]
