"""Rows of a results file as checked values: a file may come from anybody, so nothing of a row is taken on trust.

What a row has is checked here, once, for the command line and the API alike. A row that cannot be used becomes a value
that says so, with the state ``damaged`` and the reason, and so hides none of the others.
"""

import hashlib
import json
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcell.errors import UNPRINTABLE, InputError, printable
from fedcell.sim.spec import Spec, parse_stored, upgraded

LATE_S = 10.0
"""A race that has not said so for this long is taken for interrupted."""
MAX_TEXT = 32 * 2**20
"""Characters of a document: lists with a number for each of a million devices fit."""
MAX_REASON = 2000
"""Characters of a reason; more is cut off."""
MAX_POLICY = 1000
MAX_REMEMBERED = 50_000
"""Runs of a tournament or a race that a store remembers as one; with more it has the runs alone."""
MAX_POLICIES = 500
"""A tournament with more is not remembered as one: ranking takes memory with the square of their number."""
LATEST_UNIX_S = 2.5e11
"""The year 9892: later moments have no date."""
_KEY = re.compile("[0-9a-f]{64}")
_DEEPEST = 8
_MAX_BITS = 256

Status = Literal["done", "failed", "unfinished", "damaged"]
Source = Literal["simulation", "flower", "testbed"]
Moment = Annotated[float, Field(ge=-LATEST_UNIX_S, le=LATEST_UNIX_S)]
PolicyText = Annotated[str, Field(min_length=1, max_length=MAX_POLICY)]
StoredSeed = Annotated[int, Field(ge=0)]
T = TypeVar("T")


@dataclass(frozen=True)
class StoredRun:
    """What the store says of one run, without its rounds.

    Attributes:
        key: Spec.key(). A damaged run without a proper one has the SHA-256 of what stands in its place.
        document: the spec as a plain document; with the field ``code`` where a policy or model of the user's own ran,
            the first digits of its source's SHA-256. Of a damaged run: a policy ``?`` and a seed -1.
        status: ``done``, ``failed``, or ``unfinished``: stopped or under way, as far as it is stored; or ``damaged``:
            the file has something else in its place.
        reason: why it failed, or what is damaged; empty otherwise.
        finished_unix_s: when it ended, or was last stored.
        duration_s: how long it took to compute.
        rounds: how many it has.
        best_accuracy: NaN if it has no round.
        last_accuracy: NaN if it has no round.
        source: ``simulation``; ``flower`` or ``testbed`` where real devices trained.
        diverged: whether training diverged, which ended the run.
        doubt: what version 0.2 had wrong of it, and so is not to be used; empty otherwise.
    """

    key: str
    document: dict[str, Any]
    status: Status
    reason: str
    finished_unix_s: float
    duration_s: float
    rounds: int
    best_accuracy: float
    last_accuracy: float
    source: Source = "simulation"
    diverged: bool = False
    doubt: str = ""

    @property
    def policy(self) -> str:
        """The line that names its policy."""
        return str(self.document["policy"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.document["seed"])

    @property
    def columns(self) -> dict[str, Any]:
        """Its spec's fields as tables of runs name them: as `flat`, but for the limit on the rounds, rounds_limit.

        In such a table ``rounds`` is how many rounds were done.
        """
        return {column_of(name): value for name, value in flat(self.document).items()}

    @property
    def spec(self) -> Spec:
        """The run as a Spec. Nothing is imported: a policy of the user's own is its line, see `parse_stored`."""
        return parse_stored(self.document, f"run {self.key[:8]}")


@dataclass(frozen=True)
class StoredRace:
    """A race: what is asked for, and how far it was when that was last written down.

    Attributes:
        id: of the race.
        document: see runs.race.race_to_store; of a damaged race, its ``reason`` alone.
        state: such as ``running`` or ``done``; ``damaged`` if the file has something else in its place.
        created_unix_s: when it was asked for.
        seen_unix_s: when the process that runs it last said so.
        owner: that process: its machine and its process id.
    """

    id: str
    document: dict[str, Any]
    state: str
    created_unix_s: float
    seen_unix_s: float = 0.0
    owner: str = ""

    ENDED: ClassVar[tuple[str, ...]] = ("stopped", "done", "failed", "interrupted", "damaged")
    """The states of a race that nobody runs; a damaged one is what stands for a race that cannot be read."""

    @property
    def is_under_way(self) -> bool:
        """Whether a process runs the race or has it in its queue, as far as the store and this machine know."""
        machine, _, process = self.owner.rpartition(" ")
        if machine == platform.node() and not (process.isascii() and process.isdigit() and _is_alive(int(process))):
            return False
        return self.state not in self.ENDED and time.time() - self.seen_unix_s < LATE_S


@dataclass(frozen=True)
class StoredTournament:
    """A tournament: what is compared.

    Attributes:
        id: of the tournament.
        document: see runs.contest; of a damaged one, without scenarios, policies and seeds.
        asked_unix_s: when it was last asked for.
        keys: of its runs, whether they are stored yet or not, in the order of its entries.
        damage: what is wrong with it; empty otherwise.
    """

    id: str
    document: dict[str, Any]
    asked_unix_s: float
    keys: list[str]
    damage: str = ""


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class _RunRow(_Row):
    status: Literal["done", "failed", "unfinished"]
    finished_unix_s: Moment
    duration_s: float
    source: Source
    policy: PolicyText
    seed: StoredSeed
    cell: dict[str, Any] = {}
    devices: dict[str, Any] = {}
    task: dict[str, Any] = {}
    budget_s: float | None = None
    rounds: int | None = None


class _Accuracy(BaseModel):
    model_config = ConfigDict(strict=True)
    best: float | None
    last: float | None
    loss: float | None


class _RaceRow(_Row):
    state: Literal["queued", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted"]
    created_unix_s: Moment
    seen_unix_s: Moment
    owner: Annotated[str, Field(max_length=1000)]


class _Scenario(_Row):
    name: Annotated[str, Field(max_length=500)]
    about: Annotated[str, Field(max_length=2000)]
    target: Annotated[float, Field(gt=0.0, le=1.0)]
    spec: dict[str, Any]


class _TournamentRow(_Row):
    asked_unix_s: Moment
    scenarios: Annotated[list[_Scenario], Field(min_length=1)]
    policies: Annotated[list[PolicyText], Field(min_length=1, max_length=MAX_POLICIES)]
    seeds: Annotated[list[StoredSeed], Field(min_length=1)]


def is_key(value: object) -> bool:
    """Whether this is a key of a run: 64 hexadecimal digits. A key names files, so nothing else will do."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def stand_in(value: object) -> str:
    """The key by which a damaged run is known whose own is none."""
    return value if is_key(value) else hashlib.sha256(repr(value).encode()).hexdigest()  # type: ignore[return-value]


def stored_run(row: tuple[Any, ...]) -> StoredRun:
    """A run of the file.

    Args:
        row: key, document, status, reason, finished_unix_s, duration_s, source, number of rounds, and of these the best
            accuracy, the last one, the last loss, and which was the first to spend infinite joules.
    """
    key, text, status, reason, finished_unix_s, duration_s, source, rounds, best, last, loss, infinite = row

    def made() -> StoredRun:
        if not is_key(key):
            raise ValueError("its key is not 64 hexadecimal digits")
        fields = {"status": status, "finished_unix_s": finished_unix_s, "duration_s": duration_s, "source": source}
        given = document_in(text)
        document = upgraded(given)
        _RunRow.model_validate(document | fields)
        if any(map(UNPRINTABLE.search, _texts(document))):
            raise ValueError("its specification has characters that cannot be printed")
        ends = _Accuracy(best=best, last=last, loss=loss)
        told = _said(reason)
        spent = (float(finished_unix_s), float(duration_s), int(rounds))
        shown = (math.nan if ends.best is None else ends.best, math.nan if ends.last is None else ends.last)
        doubt = ""
        if status == "done" and source == "simulation":
            doubt = _doubt(document, old=document is not given, rounds=int(rounds), infinite=infinite)
        return StoredRun(key, document, status, told, *spent, *shown, source, ends.loss == math.inf, doubt)

    def damaged(why: str) -> StoredRun:
        return StoredRun(stand_in(key), {"policy": "?", "seed": -1}, "damaged", why, 0.0, 0.0, 0, math.nan, math.nan)

    return _or_damaged(made, damaged)


AGAIN = "run it again, and it is computed anew"


def _doubt(document: dict[str, Any], *, old: bool, rounds: int, infinite: object) -> str:
    """What version 0.2 had wrong of a simulated run; empty if nothing is known to be.

    Args:
        document: its spec.
        old: whether a version up to 0.2 wrote it.
        rounds: how many it has.
        infinite: the first round that spent infinite joules, None if none did.
    """
    if infinite is not None:
        return f"joules of round {infinite} infinite, for devices out of reach sent reports in version 0.2: {AGAIN}"
    if not old:
        return ""
    if said := _spending_doubt(document, rounds):
        return said
    return "no round fits into the budget, which version 0.2 counted as an accuracy of 0 %" if rounds == 0 else ""


def _spending_doubt(document: dict[str, Any], rounds: int) -> str:
    """What version 0.2 had wrong of batteries and of a budget of joules."""
    batteries = document.get("devices", {}).get("battery_j") is not None
    if not batteries and document.get("budget_j") is None:
        return ""
    try:
        spec = parse_stored(document, "the run")
    except InputError:  # a spec that is none today; whoever needs it says so
        return ""
    if spec.reports_may_be_lost:
        return f"in version 0.2 reports of devices out of reach used up the energy of budget or batteries: {AGAIN}"
    if batteries and spec.outage_possible and rounds != spec.rounds:
        return "version 0.2 ended a run with batteries when no device was in reach: delete it and run it again"
    return ""


def stored_race(row: tuple[Any, ...]) -> StoredRace:
    """A race of the file: id, document, state, created_unix_s, seen_unix_s and owner."""
    id, text, state, created_unix_s, seen_unix_s, owner = row

    def made() -> StoredRace:
        if not _is_id(id):
            raise ValueError("its id is not up to 32 hexadecimal digits")
        moments = {"created_unix_s": created_unix_s, "seen_unix_s": seen_unix_s}
        _RaceRow.model_validate({"state": state, "owner": owner} | moments)
        return StoredRace(id, document_in(text), state, float(created_unix_s), float(seen_unix_s), owner)

    return _or_damaged(made, lambda why: damaged_race(id, why))


def damaged_race(id: object, why: str) -> StoredRace:
    """What stands for a race that cannot be read."""
    name = id if isinstance(id, str) and _is_id(id) else stand_in(id)[:32]
    return StoredRace(name, {"reason": why}, "damaged", 0.0)


def stored_tournament(row: tuple[Any, ...]) -> StoredTournament:
    """A tournament of the file: id, document, asked_unix_s and keys. Its names, seeds and number of keys are right."""
    id, text, asked_unix_s, keys = row

    def made() -> StoredTournament:
        if not _is_id(id):
            raise ValueError("its id is not up to 32 hexadecimal digits")
        document = document_in(text)
        found = _TournamentRow.model_validate(document | {"asked_unix_s": asked_unix_s})
        listed = [bytes(keys)[at : at + 32].hex() for at in range(0, len(keys), 32)]
        parts: list[list[Any]] = [[one.name for one in found.scenarios], found.policies, found.seeds]
        if any(len(set(part)) != len(part) for part in parts) or not all(map(is_key, listed)):
            raise ValueError("it has something twice, or no proper keys")
        if len(listed) != math.prod(map(len, parts)) or len(listed) > MAX_REMEMBERED:
            raise ValueError("it does not have a key for each run")
        return StoredTournament(id, document, float(asked_unix_s), listed)

    def damaged(why: str) -> StoredTournament:
        name = id if _is_id(id) else stand_in(id)[:16]
        return StoredTournament(name, {"scenarios": [], "policies": [], "seeds": []}, 0.0, [], why)

    return _or_damaged(made, damaged)


def document_in(text: object) -> dict[str, Any]:
    """A document as the file has it: JSON of plain values that every other program can hold, not deep and not long."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise ValueError(f"its document is not text of up to {MAX_TEXT >> 20} MiB")
    document = json.loads(text, parse_constant=_refuse)
    if not isinstance(document, dict):
        raise TypeError("its document is no table")
    _check_plain(document, _DEEPEST)
    return document


def _check_plain(value: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError("its document is too deep")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_plain(name, depth - 1)
            _check_plain(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(inner, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("its document has a number beyond all floats")
    elif isinstance(value, str):
        value.encode()  # which refuses a half of a character
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError(f"its document has a number of more than {_MAX_BITS} bits")


def _texts(value: Any) -> Iterator[str]:
    """All texts in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"its document has {word}, which JSON lacks")


def _said(reason: object) -> str:
    if not isinstance(reason, str):
        raise TypeError("its reason is not text")
    return printable(reason[:MAX_REASON])


def _is_id(id: object) -> bool:
    return isinstance(id, str) and re.fullmatch("[0-9a-f]{1,32}", id) is not None


def _or_damaged(make: Callable[[], T], damaged: Callable[[str], T]) -> T:
    try:
        return make()
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        why = f"{'.'.join(map(str, fault['loc']))}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
    except Exception as error:  # whatever somebody has written there
        why = str(error) if type(error) in (ValueError, TypeError) else type(error).__name__
    return damaged(printable(f"damaged in the file ({why[:300]})"))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """A spec's document with nested fields named by a dot; an unlimited budget, which is left out of it, is None."""
    found: dict[str, Any] = {"budget_s": None}
    for name, value in document.items():
        if name == "version":  # of the document, and no field of the run
            continue
        found |= {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value}
    return found


def column_of(field: str) -> str:
    """What tables of runs call a field of the spec; see `StoredRun.columns`."""
    return "rounds_limit" if field == "rounds" else field
