"""Nobody else drives the server: Host, Origin, token, headers, and what `fedcell serve` refuses to start with."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedcell.cli.serve import serve as run_server
from fedcell.dashboard.security import Guard, Send
from fedcell.dashboard.state import Hub, ServerSettings
from fedcell.errors import InputError
from harness import LIMIT_S, Served, fedcell, serve

pytestmark = pytest.mark.processes
TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("locked")
    (folder / "token").write_text(f"{TOKEN}\n")
    with serve(folder / "results.db", "--token-file", str(folder / "token")) as served:
        yield served


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "evil.example:{port}", ""])
def test_other_hosts_are_refused(served: Served, host: str) -> None:
    """A page that made its own name point to 127.0.0.1 (DNS rebinding) sends its own name as Host."""
    for path in ("/", "/api/info", "/static/app.css"):
        answer = served.http.get(path, headers={"host": host.format(port=served.port)})
        assert (answer.status_code, "Host" in answer.json()["detail"]) == (421, True)


def test_own_hosts_are_served(served: Served) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert served.http.get("/api/info", headers={"host": f"{name}:{served.port}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_pages_change_nothing(served: Served, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=served.port) for name, value in headers.items()}
    for method, path in (
        ("POST", "/api/races"),
        ("POST", "/api/plan"),
        ("DELETE", "/api/races/0"),
        ("PATCH", "/api/races/0"),
    ):
        answer = served.http.request(method, path, headers=sent, json={"draw": {}})
        assert (answer.status_code, "another web page" in answer.json()["detail"]) == (403, True)
    assert served.get("/api/races")["races"] == []


def test_the_own_page_and_no_page_may(served: Served) -> None:
    own = {"origin": f"http://127.0.0.1:{served.port}", "sec-fetch-site": "same-origin"}
    for headers in (own, {"sec-fetch-site": "none"}, {}):
        assert served.http.post("/api/plan", headers=headers, json={"draw": {}}).status_code == 200


def test_other_pages_read_nothing(served: Served) -> None:
    assert served.http.get("/api/info", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert "access-control-allow-origin" not in served.http.options("/api/info").headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_forms_are_not_read(served: Served, kind: str) -> None:
    answer = served.http.post("/api/plan", content=b'{"draw": {}}', headers={"content-type": kind})
    assert (answer.status_code, "application/json" in answer.json()["detail"]) == (415, True)


def test_every_answer_binds_the_page(served: Served) -> None:
    for path in ("/", "/api/info", "/api/nothing", "/api/races/zzz", "/static/nothing.js"):
        headers = served.http.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert (headers.get("cache-control") == "no-store") == path.startswith("/api/")
        assert "server" not in headers


def test_only_named_files_are_served(served: Served, tmp_path: Path) -> None:
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/api/paper/..%2fresults.db",
    ):
        assert served.http.get(path).status_code == 404
    assert served.http.get("/api/runs", params={"store": "/etc/passwd"}).status_code == 404
    assert served.http.get("/api/runs", params={"store": str(tmp_path)}).status_code == 404


def test_without_the_token_nothing_is_said(locked: Served) -> None:
    wrong = [{}, {"authorization": "Bearer wrong-horse-battery"}, {"authorization": f"Basic {TOKEN}"}]
    wrong += [{"cookie": f"fedcell_token={TOKEN}"}, {"cookie": "fedcell_token=00"}, {"authorization": "Bearer"}]
    for headers in wrong:
        for path in ("/", "/api/info", "/static/app.css", "/api/info?token=" + TOKEN):
            answer = locked.http.get(path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert locked.http.get("/?token=wrong-horse-battery").status_code == 401


def test_with_the_token_all_is_open(locked: Served) -> None:
    assert locked.http.get("/api/info", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    with httpx.Client(base_url=locked.url, timeout=LIMIT_S) as browser:
        answer = browser.get("/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert browser.get("/api/info").status_code == 200
        assert browser.post("/api/plan", json={"draw": {}}).status_code == 200
        assert (
            browser.post("/api/plan", json={"draw": {}}, headers={"origin": "http://evil.example"}).status_code == 403
        )


def test_the_printed_address_lets_a_browser_in_and_does_not_show_the_token(locked: Served) -> None:
    assert TOKEN not in locked.printed
    for _ in range(2):  # as often as it is opened
        with httpx.Client(base_url=locked.url, timeout=LIMIT_S) as browser:
            answer = browser.get(locked.printed)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert browser.get("/api/info").status_code == 200
            assert browser.get("/?key=another").status_code == 303  # the key is taken out of the address
    assert locked.http.get("/?key=another").status_code == 401
    assert locked.http.get(f"/api/info{locked.printed.removeprefix(locked.url)}").status_code == 401


def test_the_address_that_is_opened_works_once(tmp_path: Path) -> None:
    """The browser's own command line shows it."""
    settings = ServerSettings(tmp_path / "results.db", token=TOKEN, key="printed", once="opened")

    async def app(_: object, __: object, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    guard: Any = Guard(app, settings, Hub())

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://x") as browser:
            found = []
            for key in ("opened", "opened", "printed", "printed", ""):
                browser.cookies.clear()
                found.append((await browser.get("/", params={"key": key})).status_code)
            return found

    assert asyncio.run(ask()) == [303, 401, 303, 303, 401]


def start(folder: Path, *options: str, **environment: str) -> tuple[int, str]:
    found = fedcell("serve", "--no-browser", *options, cwd=folder, env=dict(os.environ) | environment)
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    return found.returncode, found.stderr


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, said = start(tmp_path, "--port", str(taken.getsockname()[1]))
    assert (status, "Address already in use; give another --port" in said) == (2, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"port": 70000}, "--port is 70000; give a number from 0 to 65535"),
        ({"host": "0.0.0.0"}, "lets other machines in; give a token"),
        ({"token": TOKEN, "token_file": Path("x")}, "--token and --token-file are both given"),
        ({"token_file": Path("no/such")}, "cannot read --token-file no/such: No such file or directory"),
        ({"token_file": Path(__file__).parent}, "cannot read --token-file .*: Is a directory"),
        ({"token_file": Path("/dev/null")}, "the token has 0 characters"),
        ({"host": "0.0.0.0", "token": "short"}, "the token has 5 characters; give at least 16"),
        ({"host": "no.such.machine.invalid", "token": TOKEN}, "cannot be used"),
        ({"store": "other.db"}, "other.db is not a fedcell results file"),
        ({"store": "empty"}, "empty is a directory"),
        ({"read": ["absent.db"]}, "there is no results file .*absent.db"),
        ({"paper": "nowhere"}, "--paper .*nowhere is not a directory"),
        ({"paper": "empty"}, "--paper .*empty has no index.html"),
    ],
)
def test_what_it_does_not_start_with(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    (tmp_path / "other.db").write_text("no store")
    (tmp_path / "empty").mkdir()
    options = {"host": None, "token": None, "token_file": None, "port": 0, "browser": False, "workers": None} | changes
    store = tmp_path / options.pop("store", "results.db")
    paper = tmp_path / options.pop("paper") if "paper" in options else None
    read = [tmp_path / name for name in options.pop("read", [])]
    with pytest.raises(InputError, match=words):
        run_server(store, read, paper, **options)


def test_a_missing_extra_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError(name='uvicorn')")
    status, said = start(tmp_path, PYTHONPATH=str(tmp_path))
    assert (status, 'pip install "fedcell[dashboard]"' in said) == (2, True)


def test_another_address_of_this_machine_needs_no_token(tmp_path: Path) -> None:
    with serve(tmp_path / "results.db", "--host", "127.0.0.3") as served:
        assert served.url.startswith("http://127.0.0.3:")
        assert served.http.get("/api/info").status_code == 200
        assert served.http.get("/api/info", headers={"host": f"127.0.0.4:{served.port}"}).status_code == 421


def test_the_token_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCELL_TOKEN", TOKEN)
    with serve(tmp_path / "results.db", "--host", "127.0.0.2") as served:
        assert served.url.startswith("http://127.0.0.2:")
        assert served.http.get("/api/info").status_code == 401
        assert served.http.get("/api/info", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
