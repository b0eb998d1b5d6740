"""A run's state directory: locked, written after each round, resumed after the server died, shown afterwards.

``rounds.jsonl`` has a line for each round; ``fedcell-N.npz`` has the model, the wrapped strategy's arrays and the
knowledge after round N; ``state.json`` says which of them are valid. It is replaced atomically once the others are on
disk, so a server killed at any time, or a full disk, leaves the last complete round. ``privacy.json`` is written as
soon as a round's models are averaged, before anybody gets the result: privacy spent is never forgotten. Nothing is
ever pickled. While a server runs, it holds a lock on the directory (`locked_directory`).
"""

import fcntl
import json
import math
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from fedcell.errors import UNPRINTABLE, InputError, printable
from fedcell.files import MAX_SPEC_BYTES, read_npz, replace_file, without_nan
from fedcell.flower.compat import LOG
from fedcell.flower.nodes import Roster
from fedcell.flower.privacy import accountant_states, require_resumable, restore_accountants
from fedcell.flower.record import ScheduledRound
from fedcell.flower.replies import ModelSchema
from fedcell.flower.wrapped import arrays_of, changed_numbers, own_numbers, restore_arrays, restore_numbers
from fedcell.protocol import Knowledge
from fedcell.sim.spec import Spec, parse_stored

STATE_VERSION = 1
MAX_STATE_BYTES = 64 * 2**20
Numbers = dict[str, float]


@dataclass(frozen=True)
class Run:
    """The run in a state directory.

    Attributes:
        policy: the policy, as a string.
        seed: random seed of the policy.
        strategy: class name of the wrapped strategy, with those that it wraps in brackets.
        rounds: those that are complete.
        names: names of the devices.
        model: the file with the model and the knowledge; None before the first round.
        spec: the run as a spec, if there is one.
        averaging: how the models are weighted in their mean, ``strategy`` or ``balanced``.
        numbers: the wrapped strategy's numbers that it has changed, such as an adaptive clipping norm.
        initial: the metrics of the initial model, by source as in a round.
    """

    policy: str
    seed: int
    strategy: str
    rounds: list[ScheduledRound]
    names: list[str]
    model: str | None
    spec: Spec | None
    averaging: str = "strategy"
    numbers: Numbers = field(default_factory=dict)
    initial: dict[str, dict[str, Any]] = field(default_factory=dict)


def save(
    folder: Path,
    run: Run,
    roster: Roster,
    model: dict[str, NDArray[Any]],
    inner: dict[str, NDArray[Any]],
) -> None:
    """Write the state after the last of the run's rounds; all of it counts, or nothing."""
    number = len(run.rounds)
    name = f"fedcell-{number}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_state(folder, name, run, roster, model, inner)
    except OSError as error:
        with suppress(OSError):
            (folder / name).unlink()
        again = f"it will resume after round {number - 1}" if number > 1 else "it will start with round 1"
        raise InputError(
            f"cannot save round {number} in {folder}: {error.strerror}; make room and start the app again: {again}"
        ) from None
    killed = (path for part in ("state", "privacy") for path in folder.glob(f"{part}.json.*.tmp"))
    for old in [*folder.glob("fedcell-[0-9]*.npz*"), *killed]:
        if old.name != name:
            with suppress(OSError):
                old.unlink()


def _write_state(
    folder: Path,
    name: str,
    run: Run,
    roster: Roster,
    model: dict[str, NDArray[Any]],
    inner: dict[str, NDArray[Any]],
) -> None:
    arrays = _prefixed("knowledge", roster.knowledge.to_arrays()) | _prefixed("inner", inner)
    # A model's own names may hold anything, a slash too: they stand in state.json, the arrays by number.
    arrays |= {f"model/{i}": array for i, array in enumerate(model.values())}
    replace_file(folder / name, lambda file: np.savez(file, **arrays), sync=True)  # type: ignore[arg-type]
    _append_round(folder / "rounds.jsonl", run.rounds)
    document = {
        "fedcell_state": STATE_VERSION,
        "policy": run.policy,
        "seed": run.seed,
        "strategy": run.strategy,
        "averaging": run.averaging,
        "rounds": len(run.rounds),
        "names": list(roster.names),
        "model": name,
        "arrays": list(model),
        "numbers": _encode_nonfinite(run.numbers),
        "initial": _encode_nonfinite(run.initial),
        "spec": None if run.spec is None else run.spec.to_toml(),
    }
    _replace_json(folder / "state.json", document)


def save_accountants(folder: Path, states: dict[str, Any]) -> None:
    """Write the states of the privacy accountants."""
    if not states:
        return
    try:
        _replace_json(folder / "privacy.json", states)
    except OSError as error:
        raise InputError(
            f"cannot save the privacy spent in {folder}: {error.strerror}; make room and start the app again"
        ) from None


def load_accountants(folder: Path) -> dict[str, Any]:
    """Read the states of the privacy accountants; empty if the run has none."""
    return _read_json(folder / "privacy.json") if (folder / "privacy.json").exists() else {}


def _replace_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, allow_nan=False)
    replace_file(path, lambda file: file.write(text.encode()), sync=True)


def _append_round(path: Path, rounds: list[ScheduledRound]) -> None:
    """Append a round; lines after the valid ones are from a killed server and are overwritten."""
    keep = b"".join(path.read_bytes().splitlines(keepends=True)[: len(rounds) - 1]) if path.exists() else b""
    document = without_nan(asdict(rounds[-1])) | {"metrics": _encode_nonfinite(rounds[-1].metrics)}
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(len(keep))
        file.write(json.dumps(document, allow_nan=False).encode() + b"\n")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _encode_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by words, as Protocol Buffers do."""
    if isinstance(value, dict):
        return {key: _encode_nonfinite(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_encode_nonfinite(inside) for inside in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _decode_nonfinite(value: Any) -> Any:
    """Invert `_encode_nonfinite`; a TypeError for anything but numbers."""
    if isinstance(value, dict):
        return {str(key): _decode_nonfinite(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_decode_nonfinite(inside) for inside in value]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{value!r} is not a number")
    return float(value) if isinstance(value, str) else value


def load_run(folder: Path) -> Run:
    """Read the run in a state directory, without its arrays."""
    document = _read_json(folder / "state.json")
    if document.get("fedcell_state") != STATE_VERSION:
        raise InputError(
            f"{folder / 'state.json'} has version {document.get('fedcell_state')!r}, but this fedcell reads version "
            f"{STATE_VERSION}; give another directory"
        )
    try:
        told = _StateFile.model_validate(document)
        lines = _read(folder / "rounds.jsonl").splitlines()[: told.rounds]
        rounds = [_parse_round(json.loads(line)) for line in lines]
        if len(rounds) != told.rounds:
            raise ValueError(f"it has {len(rounds)} rounds of {told.rounds}")
        if Path(told.model).name != told.model:
            raise ValueError(f"its model {told.model[:50]!r} is outside of it")
        text = told.spec
        spec = None if text is None else parse_stored(tomllib.loads(text), str(folder / "state.json"))
        numbers, initial = _decode_nonfinite(told.numbers), _parse_metrics({"metrics": told.initial})
        own = (told.policy, told.seed, told.strategy, rounds, told.names, told.model, spec, told.averaging)
        return Run(*own, numbers, initial)
    except InputError:
        raise
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, fault['loc']))}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
    except Exception as error:  # whatever somebody has written there
        reason = f"{type(error).__name__}: {error}"
    reason = printable(" ".join(reason.split())[:200])
    raise InputError(f"{folder} is not a complete state directory of fedcell ({reason}); give another")


def _printed(text: str) -> str:
    if UNPRINTABLE.search(text):
        raise ValueError("it has characters that cannot be printed")
    return text


_Line = Annotated[str, Field(max_length=1000), AfterValidator(_printed)]


class _StateFile(BaseModel):
    """The document in state.json."""

    policy: _Line
    seed: Annotated[int, Field(ge=0)]
    strategy: _Line
    averaging: _Line
    rounds: Annotated[int, Field(ge=1)]
    names: list[_Line]
    model: Annotated[str, Field(max_length=200)]
    numbers: dict[str, Any]
    initial: dict[str, Any]
    spec: Annotated[str, Field(max_length=MAX_SPEC_BYTES)] | None


_ROUND = TypeAdapter(ScheduledRound)
_FLOATS = ("clock_s", "round_s", "planned_s", "waited_s", "shares", "planned_finish_s")
MAX_ROUND_S = 1e12
"""Thirty thousand years: a longer round is a mistake in the file."""


def _parse_round(line: dict[str, Any]) -> ScheduledRound:
    """Parse a line of rounds.jsonl; a ValueError or TypeError if it is damaged."""
    fields = {name: _null_as_nan(value) if name in _FLOATS else value for name, value in line.items()}
    done = _ROUND.validate_python(fields | {"metrics": _parse_metrics(line)})
    each = (done.names, done.shares, done.planned_finish_s, done.began_s, done.finish_s)
    if {len(values) for values in each} != {len(done.devices)}:
        raise ValueError(f"round {done.round} does not have an entry for each of its devices")
    planned_s = 0.0 if math.isnan(done.planned_s) else done.planned_s  # of a round of unknown times, before 0.2
    if not all(abs(time_s) <= MAX_ROUND_S for time_s in (done.clock_s, done.round_s, planned_s, done.waited_s)):
        raise ValueError(f"round {done.round} took longer than {MAX_ROUND_S:g} s")
    if any(UNPRINTABLE.search(name) for name in done.names):
        raise ValueError(f"round {done.round} has names that cannot be printed")
    return done


def _null_as_nan(value: Any) -> Any:
    """Restore times that JSON could not hold and that were written as null."""
    if isinstance(value, list):
        return [_null_as_nan(one) for one in value]
    return math.nan if value is None else value


def _parse_metrics(line: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(source): _decode_nonfinite(dict(values)) for source, values in line["metrics"].items()}


def require_same_model(folder: Path, saved: dict[str, NDArray[Any]], model: ModelSchema) -> None:
    """Refuse to resume with another model than the one that was saved."""
    advice = "give another directory or remove it"
    if list(saved) != list(model):
        raise InputError(f"{folder} has a run of another model: its arrays have other names; {advice}")
    for name, (shape, kind) in model.items():
        if shape is not None and saved[name].shape != shape:
            raise InputError(
                f"{folder} has a run of another model: its array {name!r} has the shape {saved[name].shape}, not "
                f"{shape}; {advice}"
            )
        if kind in ("f", "c") and saved[name].dtype.kind != kind:
            raise InputError(
                f"{folder} has a run of another model: its array {name!r} is of {saved[name].dtype}, and the app's is "
                f"of {'floats' if kind == 'f' else 'complex numbers'}; {advice}"
            )


def load_arrays(folder: Path, run: Run) -> tuple[Roster, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return the roster, the model and the wrapped strategy's arrays after the last round of the run."""
    names = _read_json(folder / "state.json").get("arrays", [])
    try:
        arrays = read_npz(folder / str(run.model))
        model = {str(name): arrays[f"model/{i}"] for i, name in enumerate(names)}
        roster = Roster(tuple(run.names), Knowledge.from_arrays(_unprefixed("knowledge", arrays)))
    except Exception as error:  # whatever somebody has written there
        raise InputError(f"cannot read {folder / str(run.model)} ({error}); the state cannot be resumed") from None
    return roster, model, _unprefixed("inner", arrays)


def _prefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _unprefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # a pipe would never end
        raise InputError(f"{path} is not a regular file; give the directory that Scheduled(state=...) wrote")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_STATE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; give the directory that Scheduled(state=...) wrote"
        ) from None
    if len(content) > MAX_STATE_BYTES:
        raise InputError(f"{path} is larger than {MAX_STATE_BYTES >> 20} MiB and not a state of fedcell; give another")
    return content


def _read_json(path: Path) -> dict[str, Any]:
    content = _read(path)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); give the directory that Scheduled(state=...) wrote") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is not a state of fedcell; give the directory that Scheduled(state=...) wrote")
    return document


@contextmanager
def locked_directory(folder: Path | None, least_bytes: int = 0) -> Iterator[None]:
    """Lock the directory for this server; inside the block it exists and can be written to.

    The operating system releases the lock when the process ends, however it ends.

    Args:
        folder: the directory, created if need be; None for no state.
        least_bytes: that must be free on the disk.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise _cannot_write(folder, error) from None
    with lock:
        _lock(folder, lock)
        try:
            _try_writing(folder, lock, least_bytes)
        except OSError as error:
            raise _cannot_write(folder, error) from None
        yield


def _lock(folder: Path, lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read(20).strip() or "unknown"
        raise InputError(
            f"{folder} is in use by another server (process {owner}); stop that one or give another directory"
        ) from None
    except OSError as error:  # some network file systems have no locks
        LOG.warning("fedcell: cannot lock %s (%s); make sure that no other server uses it", folder, error.strerror)


def _try_writing(folder: Path, lock: IO[str], least_bytes: int) -> None:
    """Write as much as a round will need and remove it again; note the process in the lock."""
    path = folder / "test.tmp"
    try:
        with path.open("wb") as file:
            file.write(b"fedcell")
            file.flush()
            os.posix_fallocate(file.fileno(), 0, max(1, least_bytes))
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            path.unlink()
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def _cannot_write(folder: Path, error: OSError) -> InputError:
    reason = "it is not a directory" if folder.exists() and not folder.is_dir() else error.strerror
    return InputError(f"cannot write to {folder}: {reason}; give Scheduled(state=...) a directory with enough space")


@dataclass(frozen=True)
class Resumed:
    """A run that was read from its state directory: its rounds, the devices it knows, and its last model."""

    run: Run
    roster: Roster
    arrays: ArrayRecord


@dataclass
class StateDirectory:
    """Saves a run in its state directory (None to save nothing), and resumes it."""

    folder: Path | None
    strategy: Strategy

    def __post_init__(self) -> None:
        self._at_start = own_numbers(self.strategy)

    def resume(self, own: Run, model: ModelSchema) -> Resumed | None:
        """Return the run in the directory, if any and if the app wants that one; restore the strategy's state."""
        if self.folder is None:
            return None
        already = load_accountants(self.folder)
        if not (self.folder / "state.json").exists():
            if already:  # of a server that was killed in its first round
                restore_accountants(self.strategy, already)
            save_accountants(self.folder, accountant_states(self.strategy))
            return None
        run = load_run(self.folder)
        for what in ("policy", "seed", "strategy", "averaging"):
            theirs, ours = getattr(run, what), getattr(own, what)
            if theirs != ours:
                raise InputError(
                    f"{self.folder} has a run whose {what} is {theirs}, not {ours}; give another directory or remove it"
                )
        roster, arrays, inner = load_arrays(self.folder, run)
        require_same_model(self.folder, arrays, model)
        require_resumable(self.strategy)
        restore_arrays(self.strategy, inner)
        restore_numbers(self.strategy, run.numbers)
        restore_accountants(self.strategy, already)
        return Resumed(run, roster, ArrayRecord({name: Array(array) for name, array in arrays.items()}))

    def save_privacy(self) -> None:
        """Save the privacy that the round just averaged has spent, before anybody gets its model."""
        if self.folder is not None:
            save_accountants(self.folder, accountant_states(self.strategy))

    def save_round(self, run: Run, roster: Roster, arrays: ArrayRecord) -> None:
        """Save the state after the last of the run's rounds."""
        if self.folder is not None:
            model = {name: array.numpy() for name, array in arrays.items()}
            numbers = changed_numbers(self.strategy, self._at_start)
            save(self.folder, replace(run, numbers=numbers), roster, model, arrays_of(self.strategy))
