"""`fedcell serve`: options become a running server."""

import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell import defaults
from fedcell.cli.console import announce_compiling
from fedcell.cli.options import Workers, argument, option
from fedcell.errors import InputError

if TYPE_CHECKING:
    import socket

MIN_TOKEN = 16


def serve(
    store: Annotated[
        Path, argument("Results file; created if missing (default: results.db).", metavar="[STORE]")
    ] = Path("results.db"),
    read: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another results file to show, read-only; repeat for several."),
    ] = None,
    paper: Annotated[
        Path | None, option("Output directory of fedcell reproduce (default: out/paper, if it exists).", metavar="DIR")
    ] = None,
    host: Annotated[
        str | None, option("Address to listen on (default: 127.0.0.1, this machine only); others need --token.")
    ] = None,
    token: Annotated[
        str | None,
        option(
            "Access token that every request must carry. Other users can see it in the list of processes: better "
            "give --token-file or set FEDCELL_TOKEN."
        ),
    ] = None,
    token_file: Annotated[Path | None, option("File whose first line is the access token.", metavar="FILE")] = None,
    port: Annotated[int, option(f"Port; 0 picks a free one (default: {defaults.PORT}).")] = defaults.PORT,
    browser: Annotated[bool, option("Open the page in a browser.", "--browser/--no-browser")] = True,
    workers: Workers = None,
    allow_import: Annotated[
        bool,
        typer.Option(
            "--allow-import",
            help="Resume and rerun races of the results file whose policies or models are code, which imports it.",
        ),
    ] = False,
) -> None:
    """Serve the dashboard: races, the cell, plans and results in a browser.

    Only this machine can reach it, unless --host and an access token are given. Ctrl-C stops the server; a race
    that was running can be resumed the next time.
    """
    try:
        from fedcell.dashboard.app import build_server
        from fedcell.dashboard.state import ServerSettings
    except ImportError as error:
        if error.name is not None and error.name.startswith("fedcell"):
            raise
        raise InputError(
            'fedcell serve needs FastAPI and uvicorn, which are not installed; pip install "fedcell[dashboard]"'
        ) from None
    token = _token(token, token_file)
    address = _address(host, token)
    paper = _paper_folder(paper)
    listening = _listen(address, port)
    with listening:
        port = listening.getsockname()[1]
        hosts = None if token else _hosts(address, port)
        key, once = (secrets.token_urlsafe(16), secrets.token_urlsafe(16)) if token else (None, None)
        settings = ServerSettings(store, tuple(read or []), paper, workers, hosts, token, key, once, allow_import)
        announce_compiling()
        server = build_server(settings)
        name = f"[{address}]" if ":" in address else address
        url = f"http://{name}:{port}/"
        print(f"fedcell dashboard at {url}{f'?key={key}' if key else ''}  (Ctrl-C ends it)", flush=True)
        if browser and _has_display():
            import webbrowser

            webbrowser.open(f"{url}?key={once}" if once else url)
        sys.setswitchinterval(1e-3)  # plans are computed in threads: the one that answers must get its turn
        with suppress(KeyboardInterrupt):  # how one ends it
            server.run(sockets=[listening])
    if not server.state.ended:  # a plan is being computed for nobody, and Python would wait for its thread
        sys.stdout.flush()
        os._exit(0)


def _token(token: str | None, file: Path | None) -> str | None:
    """The access token, wherever it is given."""
    if token is not None and file is not None:
        raise InputError("--token and --token-file are both given; keep one")
    if file is not None:
        try:
            with file.open(encoding="utf-8") as lines:
                token = lines.readline(10_000).strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InputError(f"cannot read --token-file {file}: {reason}; give a file with the token") from None
    elif token is None:
        token = os.environ.get("FEDCELL_TOKEN") or None
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise InputError(f"the token has {len(token)} characters; give at least {MIN_TOKEN} plain ones")
    return token


def _address(host: str | None, token: str | None) -> str:
    """Where to listen; beyond this machine only with a token."""
    import ipaddress

    address = host or "127.0.0.1"
    try:
        local = address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        local = False
    if not local and token is None:
        raise InputError(
            f"--host {address} lets other machines in; give a token of at least {MIN_TOKEN} characters, which every "
            "request must then carry, with --token-file or FEDCELL_TOKEN"
        )
    return address


def _listen(address: str, port: int) -> "socket.socket":
    import socket

    if not 0 <= port <= 65535:
        raise InputError(f"--port is {port}; give a number from 0 to 65535 (0 picks a free one)")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(
            f"--host {address} cannot be used: {error.strerror}; give an address of this machine"
        ) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise InputError(f"cannot listen on {address} port {port}: {error.strerror}; give another --port") from None
    return listening


def _hosts(address: str, port: int) -> frozenset[str]:
    names = ("127.0.0.1", "localhost", "[::1]", f"[{address}]" if ":" in address else address.lower())
    return frozenset([f"{name}:{port}" for name in names] + (list(names) if port == 80 else []))


def _paper_folder(folder: Path | None) -> Path | None:
    usual = Path("out/paper")
    if folder is None:
        return usual if (usual / "index.html").is_file() else None
    if not os.path.isdir(folder):
        raise InputError(f"--paper {folder} is not a directory; give the one that fedcell reproduce wrote")
    if not (folder / "index.html").is_file():
        raise InputError(f"--paper {folder} has no index.html; give the directory that fedcell reproduce wrote")
    return folder


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
