"""Nobody but the user's own page drives the server: Host, Origin, token, sizes, and the headers that bind the page.

A web page elsewhere may send requests to 127.0.0.1, and by DNS rebinding may even look like it; so the Host must be
ours, requests that change something must come from our own page (or from no page at all, such as curl's), and what is
not JSON or CSV is not read.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException

from fedcell.dashboard.limits import UPLOAD_BYTES

if TYPE_CHECKING:
    from fedcell.dashboard.state import Hub, ServerSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "fedcell_token"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NO_TOKEN = (
    "give the token: open the address that fedcell serve printed, or /?token=..., or send Authorization: Bearer ..."
)
BUSY = "the server has more to do than it can; try again in a second"
TOO_LARGE = f"the body is larger than {UPLOAD_BYTES >> 20} MiB, which is the limit; send less"


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: App, settings: "ServerSettings", hub: "Hub") -> None:
        self._app, self._hosts, self._hub = app, settings.hosts, hub
        self._token = _digest(settings.token) if settings.token else None
        self._keys = [_digest(key) for key in (settings.key, settings.once) if key]
        self._once = _digest(settings.once) if settings.once else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        try:
            await self._admit(scope, receive, _with_headers(send, scope["path"]))
        except asyncio.CancelledError:
            if not self._hub.closing:  # else the answer is given up
                raise

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refuse(scope, headers)
        if refused is not None:
            status, words, more = refused
            await _answer(send, status, words, more | {"connection": "close"})
        elif self._token and not _query(scope).keys().isdisjoint(("token", "key")):
            await _answer(send, 303, "welcome", {"location": "/", "set-cookie": self._cookie()})
        else:
            await self._app(scope, _limited(receive), send)

    def _refuse(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, dict[str, str]] | None:
        host = headers.get("host", "").lower()
        if self._hosts is not None and host not in self._hosts:
            return 421, "the Host header names another machine; open the address that fedcell serve printed", {}
        if self._token and not self._carries_token(scope, headers):
            return 401, NO_TOKEN, {"www-authenticate": "Bearer"}
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        site = headers.get("sec-fetch-site", "none")
        foreign = headers.get("origin", f"http://{host}").lower() != f"http://{host}"
        if (changes and foreign) or (site not in ("same-origin", "none") and (changes or _is_api(scope["path"]))):
            return 403, "the request comes from another web page; only the dashboard's own page may ask", {}
        return _refuse_body(headers) if changes else None

    def _carries_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if kind.lower() == "bearer" else []
        given += _query(scope).get("token", [])
        digests = [_digest(token) for token in given]
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        digests += [_digest_of_cookie(cookie.value)] if cookie else []
        # Digests, compared in constant time: how long it takes says nothing about the token.
        if any(secrets.compare_digest(digest, self._token or b"") for digest in digests):
            return True
        return any(self._fits(_digest(key)) for key in _query(scope).get("key", []))

    def _fits(self, digest: bytes) -> bool:
        found = any(secrets.compare_digest(digest, key) for key in self._keys)
        if found and digest == self._once:
            self._keys.remove(digest)
        return found

    def _cookie(self) -> str:
        return f"{COOKIE}={(self._token or b'').hex()}; Path=/; HttpOnly; SameSite=Strict"


def _limited(receive: Receive) -> Receive:
    """The messages of a request whose body may not be too large, also where its header does not say how large it is."""
    seen = 0

    async def receiving() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > UPLOAD_BYTES:
            raise HTTPException(413, TOO_LARGE, {"connection": "close"})
        return message

    return receiving


def _query(scope: Scope) -> dict[str, list[str]]:
    """The query of the page's address; elsewhere a secret would stay in histories and logs, and none is looked for."""
    return parse_qs(scope["query_string"].decode("latin-1")) if scope["path"] == "/" else {}


def _digest(token: str) -> bytes:
    return hashlib.sha256(b"fedcell " + token.encode("utf-8", "surrogateescape")).digest()


def _digest_of_cookie(value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        return b""


def _is_api(path: str) -> bool:
    return path.startswith("/api/")


def _refuse_body(headers: dict[str, str]) -> tuple[int, str, dict[str, str]] | None:
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > UPLOAD_BYTES:
        return 413, TOO_LARGE, {"connection": "close"}
    has_body = int(length) > 0 or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if has_body and kind not in ("application/json", "text/csv"):
        return 415, "send JSON (Content-Type: application/json) or CSV (text/csv)", {"connection": "close"}
    return None


def _with_headers(send: Send, path: str) -> Send:
    fixed = HEADERS | ({"cache-control": "no-store"} if _is_api(path) else {})

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", [])}
            message["headers"] = [
                *message.get("headers", []),
                *((k.encode(), v.encode()) for k, v in fixed.items() if k.encode() not in own),
            ]
        await send(message)

    return sending


async def _answer(send: Send, status: int, words: str, headers: dict[str, str]) -> None:
    body = json.dumps({"detail": words}).encode()
    told = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in told.items()]})
    await send({"type": "http.response.body", "body": body})
