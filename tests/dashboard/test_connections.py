"""No client keeps the others out: half a request, a body or a reader that never comes, too many connections."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fedcell.dashboard import plans
from fedcell.dashboard.api import runs
from fedcell.dashboard.connections import Connections
from fedcell.dashboard.limits import PLANS_AT_ONCE, PLANS_WAITING, Patience
from fedcell.dashboard.server import Server, build_server
from fedcell.dashboard.state import ServerSettings
from fedcell.runs.race import race_spec, race_to_store
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
from harness import LIMIT_S, wait_until

TOKEN = "correct-horse-battery"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HASTY = Patience(headers_s=0.3, body_s=0.3, stuck_s=0.3, idle_s=1, look_s=0.05)


class Running:
    """A server in a thread of this process."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.sockets: list[socket.socket] = []
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=BEARER, timeout=LIMIT_S)

    def connect(self, sent: bytes = b"", *, deaf: bool = False) -> socket.socket:
        """A connection that has sent something, and reads little or as usual; closed with the server."""
        one = socket.socket()
        self.sockets.append(one)
        if deaf:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(LIMIT_S)
        one.connect(("127.0.0.1", self.port))
        one.sendall(sent)
        return one

    def request(self, line: str, *headers: str) -> bytes:
        """The bytes of a request that is let in."""
        lines = [line, f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {TOKEN}", *headers]
        return "".join(f"{line}\r\n" for line in lines).encode()


@contextmanager
def running(store: Path, connections: Connections) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = build_server(ServerSettings(store, workers=1, token=TOKEN), connections)
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
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("hasty") / "results.db", Connections(HASTY)) as found:
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


def answer(one: socket.socket) -> None:
    """Read the list of no races."""
    said = b""
    while not said.endswith(b'{"races":[]}'):
        said += one.recv(4096) or b"the end"
        assert said.startswith(b"HTTP/1.1 200"), said


def test_a_request_that_does_not_come_ends_its_connection(hasty: Running) -> None:
    whole = hasty.request("GET /api/races HTTP/1.1") + b"\r\n"
    refused = b"POST /api/plan HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: 99999\r\n\r\n"
    halves = [b"", b"G", whole[:-1], b"\x16\x03\x01", whole + whole[:40], whole * 3 + b"GET", refused + b"a"]
    sockets = [hasty.connect(half) for half in halves]
    answers = [ended(one).count(b"HTTP/1.1 200") for one in sockets]
    assert answers == [0, 0, 0, 0, 1, 3, 0]


def test_a_request_that_comes_byte_by_byte_ends_its_connection(hasty: Running) -> None:
    one = hasty.connect()
    one.settimeout(0.05)

    def closed() -> bool:
        try:
            one.sendall(b"a")
            return one.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    wait_until(closed, "the end of the connection")


def test_a_body_that_does_not_come_is_refused(hasty: Running) -> None:
    head = hasty.request("POST /api/plan HTTP/1.1", "Content-Type: text/csv", "Content-Length: 99")
    said = ended(hasty.connect(head + b"\r\nupload_s"))
    assert said.startswith(b"HTTP/1.1 408")
    assert b"took too long" in said


def test_what_follows_a_refused_request_is_not_a_fault(hasty: Running, capfd: pytest.CaptureFixture[str]) -> None:
    head = b"POST /api/plan HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = hasty.connect(head)
    assert b"HTTP/1.1 401" in one.recv(4096)
    ended(hasty.connect(head + b"zz\r\n"))
    ended(hasty.connect(b"\0" * 4096))
    ended(hasty.connect(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000))
    assert hasty.http.get("/api/races").status_code == 200
    assert capfd.readouterr().err == ""


def test_an_upload_that_is_broken_off_is_not_a_fault(hasty: Running, capfd: pytest.CaptureFixture[str]) -> None:
    head = hasty.request("POST /api/plan HTTP/1.1", "Content-Type: text/csv", "Content-Length: 99999")
    hasty.connect(head + b"\r\nupload_s,compute_s\n1,1\n").close()
    for _ in range(3):
        assert hasty.http.get("/api/races").status_code == 200
    assert capfd.readouterr().err == ""


def test_a_reader_that_does_not_read_ends_its_connection(hasty: Running) -> None:
    whole = hasty.request("GET /static/app.css HTTP/1.1") + b"\r\n"
    one = hasty.connect(deaf=True)

    def cut_off() -> bool:
        try:
            one.sendall(whole)
            return False
        except OSError:
            return True

    wait_until(cut_off, "the end of the connection")


def test_a_stream_that_is_not_read_ends(tmp_path: Path) -> None:
    base = Spec(rounds=1)
    spec = race_spec(base.changed({}, {"policy": ["all", "random:k=2"], "seed": list(range(300))}))
    with Store(tmp_path / "results.db") as store:
        for id in ("a0", "a1", "a2", "a3"):
            store.put_race(race_to_store(id, spec, 0.9, "stopped", 0.0, ""))
    with running(tmp_path / "results.db", Connections(HASTY)) as served:
        hub, races = served.server.state.hub, served.server.state.races.all()
        served.connect(served.request("GET /api/events HTTP/1.1") + b"\r\n", deaf=True)
        wait_until(lambda: hub.open == 1, "the stream")

        def closed() -> bool:
            for race in races:
                race.version += 1
            hub.changed()
            return hub.open == 0

        wait_until(closed, "the end of the stream")


def test_no_number_of_strangers_keeps_the_owner_out(tmp_path: Path) -> None:
    with running(tmp_path / "results.db", Connections(most=5, strangers=3)) as served:
        half = b"GET / HTTP/1.1\r\nHost: "
        strangers = [served.connect(half) for _ in range(20)]
        assert served.http.get("/api/races").status_code == 200
        left = 0
        for one in strangers:
            one.settimeout(0.0)
            try:
                left += one.recv(1) != b""
            except BlockingIOError:
                left += 1
            except ConnectionResetError:
                pass
        assert 0 < left <= 3
        for _ in range(5):
            served.connect(half)
        assert served.http.get("/api/races").status_code == 200  # and keeps her connection


def test_the_owners_idle_connections_give_way(tmp_path: Path) -> None:
    with running(tmp_path / "results.db", Connections(most=5)) as served:
        whole = served.request("GET /api/races HTTP/1.1") + b"\r\n"
        sockets = []
        for _ in range(5 + 3):
            sockets.append(served.connect(whole))
            answer(sockets[-1])
        assert [ended(one) for one in sockets[:3]] == [b""] * 3
        sockets[3].sendall(whole)
        answer(sockets[3])


def test_plans_for_clients_that_have_gone_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun, go_on, answered = threading.Semaphore(0), threading.Event(), list[bytes]()

    def slow(body: bytes, media_type: str, query: dict[str, str]) -> tuple[str, str]:
        begun.release()
        assert go_on.wait(60)
        answered.append(body)
        return "{}", "application/json"

    with running(tmp_path / "results.db", Connections()) as found:
        monkeypatch.setattr(plans, "answer", slow)
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

    with running(tmp_path / "results.db", Connections()) as found:
        monkeypatch.setattr(runs, "listed", slow)
        found.connect(found.request("GET /api/runs HTTP/1.1") + b"\r\n").close()
        assert begun.wait(60)
    assert answered == []  # it did not wait for the answer that nobody awaits
    go_on.set()
