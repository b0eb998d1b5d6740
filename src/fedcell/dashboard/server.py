"""The server: uvicorn, with our limits, that ends within about a second."""

import logging
from types import FrameType

import uvicorn

from fedcell.dashboard import limits
from fedcell.dashboard.app import build_app
from fedcell.dashboard.connections import Connections, protocol
from fedcell.dashboard.state import AppState, ServerSettings


class Server(uvicorn.Server):
    """uvicorn's server; a signal ends streams and connections too.

    Attributes:
        state: what its routes share.
    """

    def __init__(self, config: uvicorn.Config, state: AppState, connections: Connections) -> None:
        super().__init__(config)
        self.state, self._connections = state, connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal."""
        self.state.hub.close()
        self._connections.close()
        super().handle_exit(sig, frame)


def build_server(settings: ServerSettings, connections: Connections | None = None) -> Server:
    """The server, to be run on a listening socket; an InputError if a results file cannot be used."""
    connections = connections or Connections()
    # asyncio warns of every write to a client that has gone; anybody could fill the terminal with that.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    _, app, state = build_app(settings, connections)
    config = uvicorn.Config(
        app,
        http=protocol(connections),
        loop="asyncio",  # which accepts no more connections at once than the backlog, and then reads
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the client's address in a scope is the connection's
        backlog=limits.BACKLOG,
        timeout_keep_alive=connections.patience.idle_s,
    )
    return Server(config, state, connections)
