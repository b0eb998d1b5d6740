"""The web server: uvicorn with our limits, the page, the API under it, and how every fault becomes one sentence."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response
from typing_extensions import override

from fedcell import __version__
from fedcell.dashboard import info, limits, plan, races, runs, tournaments
from fedcell.dashboard.limits import BusyError
from fedcell.dashboard.queue import ConflictError
from fedcell.dashboard.schemas import ErrorAnswer, as_json
from fedcell.dashboard.security import BUSY, App, Guard
from fedcell.dashboard.state import AppState, ServerSettings
from fedcell.errors import InputError

STATIC = Path(__file__).parent / "static"


class Pages(StaticFiles):
    """Files of the page: asked for by version they never change, otherwise the browser asks each time."""

    @override
    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        versioned = f"v={__version__}" in scope["query_string"].decode("latin-1")
        response.headers["cache-control"] = "max-age=31536000, immutable" if versioned else "no-cache"
        return response


def build_app(settings: ServerSettings) -> tuple[FastAPI, App, AppState]:
    """The API, the same behind its guard, and the state; an InputError if a results file cannot be used."""
    state = AppState(settings)
    app = FastAPI(
        title="fedcell",
        version=__version__,
        description="Plans, races and results of `fedcell serve`. Every fault is a 4xx or 503 with one sentence.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses={status: {"model": ErrorAnswer} for status in (401, 403, 421, 503)},
        lifespan=_lifespan(state),
    )
    for module in (info, plan, races, runs, tournaments):
        app.include_router(module.router(state), prefix="/api")
    app.add_api_route("/", _index, include_in_schema=False)
    if STATIC.is_dir():
        app.mount("/static", Pages(directory=STATIC), name="static")
    _say_faults(app)
    return app, Guard(app, settings, state.hub), state


def _lifespan(state: AppState) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.hub.start()
        warming_up = asyncio.create_task(state.plans.run(plan.warm_up))
        yield
        warming_up.cancel()
        await asyncio.gather(warming_up, return_exceptions=True)
        await asyncio.to_thread(state.close)

    return lifespan


async def _index() -> Response:
    if not (STATIC / "index.html").is_file():
        raise HTTPException(404, "the page is not installed; the API is under /api/")
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


def _say_faults(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def refused(_: Request, error: InputError) -> Response:
        return fault(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return fault(422, _sentence(error))

    @app.exception_handler(ConflictError)
    async def conflict(_: Request, error: ConflictError) -> Response:
        return fault(409, str(error))

    @app.exception_handler(BusyError)
    async def busy(_: Request, _error: BusyError) -> Response:
        return fault(503, BUSY, {"retry-after": "1"})

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, _error: ClientDisconnect) -> Response:
        return fault(400, "the body was not sent to its end")  # to nobody: the client has left

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return fault(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(Exception)
    async def ours(_: Request, error: Exception) -> Response:
        return fault(500, f"a fault in fedcell ({type(error).__name__}); its log has the rest")


def fault(status: int, words: str, headers: Any = None) -> Response:
    """A refusal."""
    text = " ".join(words.split())[:1000]
    return Response(as_json({"detail": text}), status, headers, media_type="application/json")


def _sentence(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    words = str(first["msg"])
    return f"{place}: {words[:1].lower()}{words[1:]}"[:300] if place else words[:300]


class Server(uvicorn.Server):
    """uvicorn's server; a signal ends streams too. ``state``: what its routes share."""

    def __init__(self, config: uvicorn.Config, state: AppState) -> None:
        super().__init__(config)
        self.state = state

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.state.hub.close()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that an answer is given up is no fault
        super().handle_exit(sig, frame)


def build_server(settings: ServerSettings) -> Server:
    """The server, to be run on a listening socket; an InputError if a results file cannot be used."""
    # asyncio tells of every write to a client that has gone, and of nonsense after a refused request: that could fill
    # the terminal.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    _, app, state = build_app(settings)
    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the client's address in a scope is the connection's
        limit_concurrency=limits.CONNECTIONS,
        timeout_keep_alive=limits.IDLE_S,
        timeout_graceful_shutdown=limits.CLOSING_S,
    )
    return Server(config, state)
