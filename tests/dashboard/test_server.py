"""The server: nonsense and clients that leave are no faults, bodies and connections have limits, and it stops."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fedcell.dashboard import limits, plan, runs
from fedcell.dashboard.app import Server, build_server
from fedcell.dashboard.limits import PLANS_AT_ONCE, PLANS_WAITING, UPLOAD_BYTES
from fedcell.dashboard.state import ServerSettings
from harness import LIMIT_S, wait_until

TOKEN = "correct-horse-battery"
BEARER = {"authorization": f"Bearer {TOKEN}"}


class Running:
    """A server in a thread of this process."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.sockets: list[socket.socket] = []
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=BEARER, timeout=LIMIT_S)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A connection that has sent something; closed with the server."""
        one = socket.socket()
        self.sockets.append(one)
        one.settimeout(LIMIT_S)
        one.connect(("127.0.0.1", self.port))
        one.sendall(sent)
        return one

    def request(self, line: str, *headers: str) -> bytes:
        """The bytes of a request that is let in."""
        lines = [line, f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {TOKEN}", *headers]
        return "".join(f"{line}\r\n" for line in lines).encode()


@contextmanager
def running(store: Path) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = build_server(ServerSettings(store, workers=1, token=TOKEN))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        found = Running(server, listening.getsockname()[1])
        try:
            wait_until(lambda: server.started, "the server")
            with found.http:
                yield found
        finally:
            for one in found.sockets:
                one.close()
            server.handle_exit(signal.SIGINT, None)
            thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served") / "results.db") as found:
        yield found


def ended(one: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    said = b""
    try:
        while part := one.recv(65536):
            said += part
    except ConnectionResetError:
        pass
    return said


def test_what_follows_a_refused_request_is_not_a_fault(served: Running, capfd: pytest.CaptureFixture[str]) -> None:
    head = b"POST /api/plan HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = served.connect(head)
    assert b"HTTP/1.1 401" in one.recv(4096)
    ended(served.connect(head + b"zz\r\n"))
    ended(served.connect(b"\0" * 4096))
    ended(served.connect(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000))
    assert served.http.get("/api/races").status_code == 200
    assert capfd.readouterr().err == ""


def test_an_upload_that_is_broken_off_is_not_a_fault(served: Running, capfd: pytest.CaptureFixture[str]) -> None:
    head = served.request("POST /api/plan HTTP/1.1", "Content-Type: text/csv", "Content-Length: 99999")
    served.connect(head + b"\r\nupload_s,compute_s\n1,1\n").close()
    for _ in range(3):
        assert served.http.get("/api/races").status_code == 200
    assert capfd.readouterr().err == ""


def test_plans_for_clients_that_have_gone_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun, go_on, answered = threading.Semaphore(0), threading.Event(), list[bytes]()

    def slow(body: bytes, media_type: str, query: dict[str, str]) -> tuple[str, str]:
        begun.release()
        assert go_on.wait(60)
        answered.append(body)
        return "{}", "application/json"

    with running(tmp_path / "results.db") as found:
        monkeypatch.setattr(plan, "answer", slow)
        head = found.request("POST /api/plan HTTP/1.1", "Content-Type: application/json", "Content-Length: 2")
        clients = [found.connect(head + b"\r\n{}") for _ in range(PLANS_AT_ONCE + PLANS_WAITING)]
        for _ in range(PLANS_AT_ONCE):
            assert begun.acquire(timeout=60)
        wait_until(lambda: len(found.server.state.plans._begun) == len(clients), "a full queue")
        assert found.http.post("/api/plan", json=[]).status_code == 503
        for one in clients:
            one.close()
        wait_until(lambda: len(found.server.state.plans._begun) == PLANS_AT_ONCE, "the others to give way")
        go_on.set()
        assert found.http.post("/api/plan", json=[]).status_code == 200
        wait_until(lambda: len(answered) > PLANS_AT_ONCE, "the plans that were under way")
        assert sorted(answered) == [b"[]"] + [b"{}"] * PLANS_AT_ONCE
    assert capfd.readouterr().err == ""


def test_a_server_stops_although_a_client_left_its_request_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, answered = threading.Event(), threading.Event(), list[bool]()

    def slow(*_: object) -> str:
        begun.set()
        answered.append(go_on.wait(60))
        return "{}"

    with running(tmp_path / "results.db") as found:
        monkeypatch.setattr(runs, "listed", slow)
        found.connect(found.request("GET /api/runs HTTP/1.1") + b"\r\n").close()
        assert begun.wait(60)
    assert answered == []  # it did not wait for the answer that nobody awaits
    go_on.set()


def test_a_body_without_a_length_has_a_limit_too(served: Running) -> None:
    """What is sent in chunks says only in the end how much it was."""

    def parts() -> Iterator[bytes]:
        for _ in range(UPLOAD_BYTES // 2**20 + 1):
            yield b" " * 2**20

    answer = served.http.post("/api/plan", content=parts(), headers={"content-type": "application/json"})
    assert (answer.status_code, "8 MiB, which is the limit" in answer.json()["detail"]) == (413, True)


def test_connections_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 3)
    with running(tmp_path / "results.db") as found:
        idle = [found.connect() for _ in range(3)]
        wait_until(lambda: len(found.server.server_state.connections) == 3, "the connections")
        whole = found.request("GET /api/races HTTP/1.1", "Connection: close") + b"\r\n"
        assert ended(found.connect(whole)).startswith(b"HTTP/1.1 503")
        idle[0].close()
        idle[1].close()
        wait_until(lambda: ended(found.connect(whole)).startswith(b"HTTP/1.1 200"), "room")
