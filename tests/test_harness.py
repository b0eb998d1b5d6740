"""What the other tests rely on: a process that gets Ctrl-C, whose end is awaited, and that leaves nothing behind."""

import os
import signal
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import harness
from harness import FEDCELL, Process, Terminal, fedcell, python, run, traced_peak_bytes, wait_until

pytestmark = pytest.mark.processes
WAITS = "import time\nprint('here', flush=True)\ntime.sleep(600)"
TOLD_BY_A_WORKER = """
import os
from fedcell.runs.processes import Processes

os.environ["OWN"] = "kept"
with Processes(1) as pool:
    def ask(question):
        return pool.submit(eval, question).result()
    for question in ("environ.get('OWN')", "environ['OMP_NUM_THREADS']", "environ['NUMBA_NUM_THREADS']", "getcwd()"):
        print(ask(f"__import__('os').{question}"))
    print(ask("__import__('signal').pthread_sigmask(0, ())"), ask("__import__('sys').argv"))
    for _ in range(2):
        print("zygote.py" in ask("' '.join(__import__('sys').orig_argv)"))
        os.kill(ask("__import__('os').getppid()"), 9)  # the fork server; the second one starts from nothing
        try:
            pool.submit(os._exit, 0).result()
        except Exception as error:
            print(error)
"""
LEAVES_ONE = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITS!r}], start_new_session=True)
print(child.pid, flush=True)
"""


def test_ctrl_c_reaches_a_process_though_we_were_started_with_it_ignored() -> None:
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path.insert(0, {__file__.rpartition("/")[0]!r})
import harness
harness.accept_interrupts()
with harness.Process(sys.executable, "-c", {WAITS!r}) as process:
    process.wait_for_text("here")
    process.interrupt()
    print(process.finish().returncode)
"""
    assert int(python(code)) == -signal.SIGINT


def test_what_a_process_left_running_in_another_session_is_ended() -> None:
    with Process(sys.executable, "-c", LEAVES_ONE) as process:
        done = process.finish()
        wait_until(lambda: "here" in process.out, "the child")
        left = psutil.Process(int(done.stdout.split()[0]))
        assert process.living() == [left]
    wait_until(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, "its end", 10.0)
    assert process.out.split()[1] == "here"  # still to be read


def test_a_wait_has_an_end_and_says_what_never_came() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.1 s in vain for the moon"):
        wait_until(lambda: False, "the moon", 0.1)
    with (
        Process(sys.executable, "-c", "print('no'); exit(3)") as process,
        pytest.raises(AssertionError, match="it ended with status 3 before the text 'yes' came:\nno"),
    ):
        process.wait_for_text("yes")
    with (
        Process(sys.executable, "-c", WAITS) as process,
        pytest.raises(AssertionError, match=r"it did not end within 0\.1 s"),
    ):
        process.finish(0.1)


def test_what_is_typed_and_what_is_printed() -> None:
    code = "import sys; print(input()); print(sys.stdin.read(), file=sys.stderr); exit(4)"
    done = run(sys.executable, "-c", code, typed="one\ntwo")
    assert (done.returncode, done.stdout, done.stderr) == (4, "one\n", "two\n")


def test_a_terminal_shows_and_takes_keys() -> None:
    code = "import sys; print(sys.stdin.isatty(), sys.stderr.isatty(), file=sys.stderr); print(input())"
    with (
        Terminal() as screen,
        Process(sys.executable, "-c", code, stdin=screen.line, stderr=screen.line) as process,
    ):
        process.wait_for(lambda: "True True" in screen.shown, "what it says")  # or the key's echo may come in between
        screen.type("key\n")
        assert process.finish().stdout == "key\n"


def test_the_peak_is_of_the_code_alone() -> None:
    assert 10e6 < traced_peak_bytes("kept = bytes(100_000_000)", "bytes(10_000_000)") < 11e6


def test_a_command_from_the_zygote_is_a_process_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An earlier test of this worker may have changed the environment for good: then commands start cold.
    if harness._zygote().environment != harness._environment():
        harness._zygote.cache_clear()
    table = "upload_s,compute_s\n1,2\n2,1\n"
    (tmp_path / "devices.csv").write_text(table)
    for arguments, typed in (
        (("plan", "devices.csv"), None),
        (("plan", "-", "--json"), table),
        (("plan", "no.csv"), None),
    ):
        warm, cold = (fedcell(*arguments, cwd=tmp_path, typed=typed, cold=cold) for cold in (False, True))
        assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    race = (*FEDCELL, "race", "--rounds", "4000", "--store", "r.db", "--plot", "none")
    with Process(*race, cwd=tmp_path) as process:
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        assert "zygote.py" in " ".join(psutil.Process(process.pid).cmdline())
        process.wait_for_text("race: ")
        assert [one.ppid() for one in process.living() if one.pid != process.pid] == [process.pid]  # its spare
        process.interrupt()
        assert process.finish().returncode == 130
    with Process(*race, cwd=tmp_path) as process:
        process.wait_for_text("race: ")
        process.kill()
        assert process.popen.returncode == -signal.SIGKILL
    monkeypatch.setenv("NUMBA_DEBUG_CACHE", "0")  # Numba reads such when it is imported
    with Process(*race, cwd=tmp_path) as process:
        assert "zygote.py" not in " ".join(psutil.Process(process.pid).cmdline())


def test_the_workers_of_a_command_from_the_zygote_are_as_any_others(tmp_path: Path) -> None:
    if harness._zygote().environment != harness._environment():
        harness._zygote.cache_clear()
    warm, cold = (python(TOLD_BY_A_WORKER, cwd=tmp_path, cold=cold).splitlines() for cold in (False, True))
    assert warm[:5] == cold[:5] == ["kept", "1", "1", str(tmp_path), "{<Signals.SIGINT: 2>} ['-c']"]
    assert warm[5:] == ["True", "the worker process died", "False", "the worker process died"]
    assert cold[5:] == ["False", "the worker process died"] * 2
