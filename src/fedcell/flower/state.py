"""What a run has done, in a folder: enough to go on after the server dies, and to show afterwards.

``rounds.jsonl`` has a line for each round; ``model-N.npz`` the model, the inner strategy's own arrays and the knowledge
after round N; ``state.json`` says which of them count. The last is replaced in one step when the others are on the
disc, so a server killed at any moment leaves the last whole round. Nothing is ever pickled.
"""

import json
import math
import os
import tomllib
import zipfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.check import without_nan
from fedcell.errors import InputError
from fedcell.flower.roster import Roster
from fedcell.schedule.policy import Plan
from fedcell.sim.knowledge import Knowledge
from fedcell.sim.loop import RoundRecord
from fedcell.sim.spec import Spec, parse_spec

STATE_VERSION = 1
MAX_STATE_BYTES = 64 * 2**20
Numbers = dict[str, float]


@dataclass(frozen=True)
class ScheduledRound:
    """What one round of a federation did. Lists are of the scheduled devices, in the plan's order.

    Attributes:
        round: its number, from 1.
        clock_s: when it ended, seconds since the run began.
        round_s: how long it took; the deadline if somebody was missing.
        planned_s: how long it was to take.
        devices: their numbers in the run.
        names: what they call themselves.
        shares: of the band.
        planned_finish_s: when each was to have delivered, seconds since the round began.
        began_s: when each began to upload, as far as it is known.
        finish_s: when each had delivered; None if it did not.
        delivered: the numbers of those whose models count.
        late: the numbers of those whose models came too late to count.
        metrics: by ``train``, ``evaluate`` and ``server``, what the strategy and the evaluation function gave.
    """

    round: int
    clock_s: float
    round_s: float
    planned_s: float
    devices: list[int]
    names: list[str]
    shares: list[float]
    planned_finish_s: list[float]
    began_s: list[float | None]
    finish_s: list[float | None]
    delivered: list[int]
    late: list[int]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """The numbers of those that delivered nothing that counts, the late ones included."""
        return [device for device in self.devices if device not in self.delivered]

    def metric(self, name: str) -> float:
        """The server's evaluation of this, else the clients'; NaN if there is none."""
        for source in ("server", "evaluate"):
            value = self.metrics.get(source, {}).get(name)
            if isinstance(value, int | float):
                return float(value)
        return math.nan

    def record(self) -> RoundRecord:
        """As the simulator would write it."""
        plan = Plan(np.array(self.devices, dtype=np.int64), np.array(self.shares), self.planned_s)
        delivered = np.array(self.delivered, dtype=np.int64)
        accuracy, loss = self.metric("accuracy"), self.metric("loss")
        return RoundRecord(self.round, self.clock_s, self.round_s, plan, delivered, accuracy, loss)


@dataclass(frozen=True)
class Run:
    """What a state folder says of its run.

    Attributes:
        policy: the line that names it.
        seed: of its lots.
        strategy: the inner strategy's class.
        rounds: those that are whole.
        names: the devices.
        model: the file of the model and the knowledge, None before the first round.
        spec: the run as a spec, if it was given.
    """

    policy: str
    seed: int
    strategy: str
    rounds: list[ScheduledRound]
    names: list[str]
    model: str | None
    spec: Spec | None


def save(
    folder: Path,
    run: Run,
    roster: Roster,
    model: dict[str, NDArray[Any]],
    inner: dict[str, NDArray[Any]],
) -> None:
    """Write the state after the last of the run's rounds; all of it counts, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(run.rounds)
    name = f"model-{number}.npz"
    arrays = _prefixed("knowledge", roster.knowledge.to_arrays()) | _prefixed("inner", inner)
    # A model's own names may hold anything, a slash too: they stand in state.json, the arrays by number.
    arrays |= {f"model/{i}": array for i, array in enumerate(model.values())}
    with (folder / f"{name}.tmp").open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        os.fsync(file.fileno())
    os.replace(folder / f"{name}.tmp", folder / name)
    _append_round(folder / "rounds.jsonl", run.rounds)
    document = {
        "fedcell_state": STATE_VERSION,
        "policy": run.policy,
        "seed": run.seed,
        "strategy": run.strategy,
        "rounds": number,
        "names": list(roster.names),
        "model": name,
        "arrays": list(model),
        "spec": None if run.spec is None else run.spec.to_toml(),
    }
    with (folder / "state.json.tmp").open("w") as file:
        json.dump(document, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "state.json.tmp", folder / "state.json")
    for old in folder.glob("model-*.npz*"):
        if old.name != name:
            old.unlink()


def _append_round(path: Path, rounds: list[ScheduledRound]) -> None:
    """Lines after those that count are a dead server's: they are written over."""
    keep = b"".join(path.read_bytes().splitlines(keepends=True)[: len(rounds) - 1]) if path.exists() else b""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(len(keep))
        file.write(json.dumps(without_nan(asdict(rounds[-1])), allow_nan=False).encode() + b"\n")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def load_run(folder: Path) -> Run:
    """Read what a state folder says of its run."""
    document = _read_json(folder / "state.json")
    if document.get("fedcell_state") != STATE_VERSION:
        raise InputError(
            f"{folder / 'state.json'} is of version {document.get('fedcell_state')!r}, and this fedcell reads "
            f"{STATE_VERSION}; give another folder"
        )
    known = {f.name for f in fields(ScheduledRound)}
    try:
        lines = _read(folder / "rounds.jsonl").splitlines()[: document["rounds"]]
        rounds = [ScheduledRound(**{k: v for k, v in json.loads(line).items() if k in known}) for line in lines]
        if len(rounds) != document["rounds"]:
            raise ValueError(f"it has {len(rounds)} rounds of {document['rounds']}")
        model = str(document["model"])
        if Path(model).name != model:
            raise ValueError(f"its model {model[:50]!r} lies elsewhere")
        names = [str(name) for name in document["names"]]
        text = document["spec"]
        spec = None if text is None else parse_spec(tomllib.loads(text), str(folder / "state.json"))
        return Run(document["policy"], int(document["seed"]), document["strategy"], rounds, names, model, spec)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is no whole state folder of fedcell ({error}); give another") from None


def load_arrays(folder: Path, run: Run) -> tuple[Roster, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The knowledge, the model and the inner strategy's arrays after the run's last round."""
    names = _read_json(folder / "state.json").get("arrays", [])
    try:
        with np.load(folder / str(run.model), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        model = {str(name): arrays[f"model/{i}"] for i, name in enumerate(names)}
        roster = Roster(tuple(run.names), Knowledge.from_arrays(_unprefixed("knowledge", arrays)))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {folder / str(run.model)} ({error}); the state cannot be resumed") from None
    return roster, model, _unprefixed("inner", arrays)


def _prefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _unprefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_STATE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; give the folder that Scheduled(state=...) wrote"
        ) from None
    if len(content) > MAX_STATE_BYTES:
        raise InputError(f"{path} is larger than {MAX_STATE_BYTES >> 20} MiB; it is no state of fedcell's")
    return content


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_read(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}); give the folder that Scheduled(state=...) wrote") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is no state of fedcell's; give the folder that Scheduled(state=...) wrote")
    return document
