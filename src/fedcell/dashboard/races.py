"""/api/races and its events: start, watch, pause, stop, resume."""

from collections.abc import Callable
from typing import Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell.dashboard import limits
from fedcell.dashboard.curves import race_curves
from fedcell.dashboard.exports import MEDIA, failures_of, race_data, race_page, race_picture
from fedcell.dashboard.limits import body_documented, known_race, parse_body
from fedcell.dashboard.queue import ConflictError, LiveRace
from fedcell.dashboard.runs import By
from fedcell.dashboard.schemas import (
    Curves,
    ErrorAnswer,
    RaceAsk,
    RaceCommand,
    RaceDocument,
    RaceList,
    RaceRuns,
    RaceWords,
    as_json,
)
from fedcell.dashboard.state import AppState, EventStream, event
from fedcell.plots import styles
from fedcell.runs.comparisons import Axis
from fedcell.runs.race_report import race_command
from fedcell.runs.records import Rounds
from fedcell.runs.store import spec_document
from fedcell.sim.record import ROUND_COLUMNS
from fedcell.sim.spec_fields import in_words

ROWS_AN_EVENT = 500
EVENTS_A_LOOK = 200
Id = Path(pattern="^[0-9a-f]{1,32}$")
FAULTS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorAnswer} for status in (404, 409, 413, 415, 422)}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["races"], responses=FAULTS)
    races = state.races

    def find(id: str) -> LiveRace:
        race = races.get(id)
        if race is None:
            raise HTTPException(404, f"there is no race {id!r}; see /api/races")
        return race

    def sound(race: LiveRace) -> LiveRace:
        if race.state == "damaged":
            raise ConflictError(f"the race is {race.reason}; it can only be deleted")
        return race

    def told(race: LiveRace) -> dict[str, Any]:
        return race_document(state, race)

    async def loaded(race: LiveRace) -> LiveRace:
        if races.missing(sound(race)):  # else nothing has to wait: all streams that there may be can begin at once
            await state.views.run(lambda: races.load(race))
        return race

    @routes.post("/races", status_code=201, openapi_extra=body_documented(RaceAsk))
    async def create(request: Request) -> RaceDocument:
        """Queue a race; it begins when those before it have ended."""
        body = await request.body()
        if len(body) > limits.RACE_BYTES:
            raise HTTPException(413, f"the race is larger than {limits.RACE_BYTES >> 10} KiB, which is the limit")
        ask = parse_body(RaceAsk, body)
        spec = await state.views.run(lambda: known_race(ask.spec, ask.policies, ask.seeds))
        race = await state.views.run(lambda: races.create(spec, ask.target))
        await state.stores[0].ask(lambda store: store.put_race(race.stored()))
        return RaceDocument.model_validate(told(race))

    @routes.get("/races")
    async def listed() -> RaceList:
        """All races, the newest first."""
        return RaceList.model_validate({"races": [told(race) for race in races.all()]})

    @routes.get("/races/{id}")
    async def one(id: str = Id) -> RaceDocument:
        """One race."""
        return RaceDocument.model_validate(told(find(id)))

    @routes.patch("/races/{id}", openapi_extra=body_documented(RaceWords))
    async def describe(request: Request, id: str = Id) -> RaceDocument:
        """Give a race a name or a note."""
        race, words = sound(find(id)), parse_body(RaceWords, await request.body())
        name, note = (
            old if new is None else new.strip() for old, new in ((race.name, words.name), (race.note, words.note))
        )
        await state.stores[0].ask(lambda _: races.describe(race, name, note))
        return RaceDocument.model_validate(told(race))

    @routes.get("/races/{id}/command")
    async def command(id: str = Id) -> RaceCommand:
        """The `fedcell race` command that runs the race again."""
        race = sound(find(id))
        line, toml = race_command(race.spec, race.target)
        return RaceCommand(command=line, toml=toml)

    @routes.get("/races/{id}/runs")
    async def runs_of(id: str = Id) -> RaceRuns:
        """How many runs it has, and how many of them stay whatever becomes of the race."""
        race = find(id)
        own = await state.stores[0].ask(lambda _: races.own_runs(race))
        return RaceRuns(runs=len(race.runs), shared=len(race.runs) - len(own))

    @routes.delete("/races/{id}", status_code=204, response_class=Response)
    async def forget(
        id: str = Id,
        runs: bool = Query(False, description="Delete its runs too, but for those of other races and of tournaments."),
    ) -> Response:
        """Forget a race that waits or has ended; its stored runs stay unless `runs` is true."""
        race = find(id)
        await state.stores[0].ask(lambda _: races.forget(race, runs=runs))
        return Response(status_code=204)

    moves: dict[str, Callable[[LiveRace], None]] = {
        "pause": races.pause,
        "continue": races.go_on,
        "stop": races.stop,
        "resume": races.resume,
    }

    @routes.post("/races/{id}/{action}")
    async def act(action: Literal["pause", "continue", "stop", "resume", "rerun"], id: str = Id) -> RaceDocument:
        """Pause, continue, stop; resume a race that was stopped or interrupted, or failed; rerun one that has ended."""
        race = find(id)
        if action == "rerun":  # which deletes runs: in the store's thread
            await state.stores[0].ask(lambda _: races.rerun(race))
        else:
            moves[action](race)
        if action in ("resume", "rerun") or race.state == "stopped":
            await state.stores[0].ask(lambda store: store.put_race(race.stored()))
        return RaceDocument.model_validate(told(race))

    @routes.get("/races/{id}/curves", response_class=Response, responses={200: {"model": Curves}})
    async def curves(id: str = Id, by: Axis = By) -> Response:
        """Mean curves with their bands, the tables and the verdicts, of what there is so far."""
        race = await loaded(find(id))
        runs, failures = rounds_of(state, race), failures_of(state, race)
        text = await state.views.run(lambda: as_json(race_curves(race, runs, failures, by)))
        return Response(text, media_type="application/json")

    @routes.get("/races/{id}/events", response_class=Response, responses=STREAM)
    async def events(id: str = Id) -> Response:
        """Server-sent events: `race` at every change of state, `rounds` as they come, `end`."""
        race = await loaded(find(id))
        return EventStream(state.hub, state.hub.events(_race_watcher(state, race)))

    @routes.get("/events", response_class=Response, responses=STREAM)
    async def all_events() -> Response:
        """Server-sent events: `race` when any race changes its state, `progress` as its runs get on, `gone`."""
        return EventStream(state.hub, state.hub.events(_queue_watcher(state)))

    @routes.get("/races/{id}/figure.{ending}", response_class=Response, responses=_kinds("image/svg+xml", "image/png"))
    async def figure(ending: Literal["svg", "png"], id: str = Id, by: Axis = By) -> Response:
        """The picture that `fedcell race` draws, of the seeds that every policy has finished."""
        race = sound(find(id))
        picture = await state.views.run(lambda: race_picture(state, race, ending, by))
        return Response(picture, media_type=MEDIA[ending], headers=_named(f"race-{race.id}.{ending}"))

    @routes.get("/races/{id}/data.{ending}", response_class=Response, responses=_kinds("text/csv", "application/json"))
    async def data(ending: Literal["csv", "json"], id: str = Id) -> Response:
        """What `fedcell race --csv` or `--json` prints, of the seeds that every policy has finished."""
        race = sound(find(id))
        text = await state.views.run(lambda: race_data(state, race, ending))
        return Response(text, media_type=MEDIA[ending], headers=_named(f"race-{race.id}.{ending}"))

    @routes.get("/races/{id}/page.html", response_class=Response, responses=_kinds("text/html"))
    async def page(id: str = Id) -> Response:
        """The race as one HTML file that plays without a server."""
        race = await loaded(find(id))
        runs, failures = rounds_of(state, race), failures_of(state, race)
        axes: tuple[Axis, ...] = ("time", "energy")

        def make() -> str:
            curves = {by: race_curves(race, runs, failures, by) for by in axes}
            return race_page(told(race), curves, race_command(race.spec, race.target)[0])

        text = await state.views.run(make)
        return Response(text, media_type="text/html", headers=_named(f"race-{race.id}.html"))

    return routes


def _kinds(*kinds: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {} for kind in kinds}}}


def _named(file: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{file}"'}


def race_document(state: AppState, race: LiveRace) -> dict[str, Any]:
    """A race as RaceDocument has it."""
    with state.races.lock:
        looks = styles(race.policies)
        runs = [
            {
                "key": run.key,
                "policy": run.spec.policy,
                "seed": run.spec.seed,
                "state": run.state,
                "reason": run.reason,
                "rounds": None if run.numbers is None else len(run.numbers),
                "clock_s": run.last("clock_s"),
                "accuracy": run.last("accuracy"),
            }
            for run in race.runs.values()
        ]
        return {
            "id": race.id,
            "name": race.name,
            "note": race.note,
            "state": race.state,
            "reason": race.reason,
            "created_unix_s": race.created_unix_s,
            "words": "cannot be read" if race.state == "damaged" else in_words(race.spec, len(race.seeds)),
            "spec": {} if race.state == "damaged" else spec_document(race.spec),
            "policies": [{"line": line, "colour": c, "dash": d} for line, (c, d) in looks.items()],
            "seeds": race.seeds,
            "target": race.target,
            "runs": runs,
            "position": state.races.position(race),
            "elsewhere": race.elsewhere,
        }


def rounds_of(state: AppState, race: LiveRace) -> dict[tuple[str, int], tuple[Rounds, bool]]:
    """Each run's rounds so far, and whether it has ended."""
    with state.races.lock:
        found = [(run.spec, list(run.numbers or []), run.state == "done") for run in race.runs.values()]
    return {(spec.policy, spec.seed): (Rounds.of(numbers), ended) for spec, numbers, ended in found}


def _race_event(state: AppState, race: LiveRace) -> str:
    """Made once for all streams: a race of 600 runs is a long document."""
    mark = (race.version, state.races.position(race))
    if race.told[0] != mark:
        race.told = (mark, event("race", race_document(state, race)))
    return race.told[1]


def _race_watcher(state: AppState, race: LiveRace) -> Callable[[], tuple[list[str], bool]]:
    """A function that tells what is new in a race since it was last called."""
    seen_version, seen_rows = 0, dict[str, int]()

    def look() -> tuple[list[str], bool]:
        nonlocal seen_version
        found: list[str] = []
        with state.races.lock:
            if race.version != seen_version:
                seen_version = race.version
                found.append(_race_event(state, race))
            for run in race.runs.values():
                rows = run.numbers or []
                while len(rows) > (seen := seen_rows.get(run.key, 0)) and len(found) < EVENTS_A_LOOK:
                    part = rows[seen : seen + ROWS_AN_EVENT]
                    seen_rows[run.key] = seen + len(part)
                    told = {"run": run.key, "policy": run.spec.policy, "seed": run.spec.seed}
                    found.append(event("rounds", told | {"columns": ROUND_COLUMNS, "rows": part}))
            ended = race.ended and len(found) < EVENTS_A_LOOK
        return [*found, event("end", {"state": race.state})] if ended else found, ended

    return look


def _queue_watcher(state: AppState) -> Callable[[], tuple[list[str], bool]]:
    """A function that tells which races have changed since it was last called, and how far their runs are."""
    seen: dict[str, tuple[int, int | None]] = {}
    rounds: dict[str, dict[str, int]] = {}

    def look() -> tuple[list[str], bool]:
        races = {race.id: race for race in reversed(state.races.all())}
        gone = [id for id in seen if id not in races]
        found = [event("gone", {"id": id}) for id in gone]
        for id in gone:
            del seen[id], rounds[id]
        for race in races.values():
            mark = (race.version, state.races.position(race))
            if seen.get(race.id) != mark:
                seen[race.id] = mark
                found.append(_race_event(state, race))
            before = rounds.setdefault(race.id, {})
            if not race.ended and (news := _progress(state, race, before)):
                found.append(event("progress", {"id": race.id, "runs": news}))
        return found, False

    return look


def _progress(state: AppState, race: LiveRace, before: dict[str, int]) -> list[dict[str, Any]]:
    """How far the runs are that have got on since; ``before`` has the rounds that were told, and is updated."""
    news = []
    with state.races.lock:
        for run in race.runs.values():
            count = len(run.numbers or [])
            if count > before.get(run.key, 0):
                before[run.key] = count
                last = {name: run.last(name) for name in ("clock_s", "accuracy")}
                news.append({"key": run.key, "rounds": count, **last})
    return news
