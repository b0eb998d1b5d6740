"""The server: uvicorn, with our limits, that ends within about a second."""

import logging
from types import FrameType

import uvicorn
from typing_extensions import override

from fedcell.dashboard import limits
from fedcell.dashboard.app import build_app
from fedcell.dashboard.state import AppState, ServerSettings


class Server(uvicorn.Server):
    """uvicorn's server; a signal ends streams too.

    Attributes:
        state: what its routes share.
    """

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
