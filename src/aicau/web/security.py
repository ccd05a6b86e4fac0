"""Who may look and who may change: hosts, tokens, cookies, forged requests, sizes.

Everything is checked before a page sees the request. A cookie holds a random name and its signature; the word that
every form carries (CSRF) is signed with that name, so that another site can neither read nor make it.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import deque
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Form, Header, HTTPException, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "aicau"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_BYTES = 64 * 2**20  # of an upload
MOST_WRONG, WINDOW = 5, 60.0  # wrong tokens from one address, and in how many seconds
MOST_WRONG_OVERALL = 50
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Tokens and signatures of one server."""

    def __init__(self, token: str | None, hosts: Iterable[str]) -> None:
        self.token = token
        self.hosts = {host.casefold().strip("[]") for host in (*LOOPBACK, *hosts)}
        self.key = hashlib.sha256(token.encode()).digest() if token else secrets.token_bytes(32)
        self.wrong: dict[str, deque[float]] = {}

    def sign(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def cookie(self) -> str:
        """A new one."""
        name = secrets.token_hex(16)
        return f"{name}.{self.sign(f'cookie {name}')}"

    def valid(self, cookie: str) -> bool:
        name, _, signature = cookie.partition(".")
        return hmac.compare_digest(signature.encode(), self.sign(f"cookie {name}").encode())

    def csrf(self, cookie: str) -> str:
        return self.sign(f"csrf {cookie}")

    def check(self, word: str, client: str) -> bool:
        """Whether this is the token; after too many wrong ones nobody is told for a while."""
        now = time.monotonic()
        self.wrong = {who: times for who, times in self.wrong.items() if times and times[-1] > now - WINDOW}
        mine = self.wrong.setdefault(client, deque(maxlen=MOST_WRONG))
        recent = [at for times in self.wrong.values() for at in times if at > now - WINDOW]
        if sum(at > now - WINDOW for at in mine) >= MOST_WRONG or len(recent) >= MOST_WRONG_OVERALL:
            raise HTTPException(429, "There were too many wrong tokens; wait a minute and try again.")
        if self.token is not None and hmac.compare_digest(word.encode(), self.token.encode()):
            return True
        mine.append(now)
        return False


class Gate:
    """The first that a request meets."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        state.update(cookie="", bearer=False)
        fresh = ""
        try:
            self._host(scope, headers)
            fresh = self._who(scope, headers, state)
            _length(headers)
        except HTTPException as error:
            await self._refuse(error, scope, receive, self._with_headers(send, scope, ""))
            return
        if state["cookie"] == "" and not state["bearer"] and not _open(scope["path"]):
            back = (
                RedirectResponse("/login", 303) if _page(headers, scope) else _sentence(401, "Log in at /login first.")
            )
            await back(scope, receive, self._with_headers(send, scope, ""))
            return
        await self.app(scope, _limited(receive), self._with_headers(send, scope, fresh))

    def _host(self, scope: Scope, headers: Headers) -> None:
        found = headers.getlist("host")
        name = (
            urlsplit(f"//{found[0]}").hostname if len(found) == 1 and re.fullmatch(r"[\w.:\[\]-]+", found[0]) else None
        )
        if name is None or name.casefold() not in self.guard.hosts:
            raise HTTPException(421, "This server does not answer to that name; use the address that it printed.")
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            same = origin is None or urlsplit(origin).netloc.casefold() == found[0].casefold()
            if not same or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise HTTPException(403, "This request came from another site; open the page itself.")

    def _who(self, scope: Scope, headers: Headers, state: dict[str, Any]) -> str:
        """Set who asks; gives a cookie to hand out where there is a new one."""
        client = (scope.get("client") or ("",))[0]
        kind, _, word = headers.get("authorization", "").partition(" ")
        if self.guard.token is not None and kind.casefold() == "bearer":
            if not self.guard.check(word.strip(), client):
                raise HTTPException(401, "This is not the token.")
            state["bearer"] = True
            return ""
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            cookies.clear()
        held = cookies[COOKIE].value if COOKIE in cookies else ""
        if self.guard.valid(held):
            state["cookie"] = held
            return ""
        if self.guard.token is not None:
            return ""
        state["cookie"] = self.guard.cookie()
        return str(state["cookie"])

    def _with_headers(self, send: Send, scope: Scope, fresh: str) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if fresh:
                    headers.append("set-cookie", cookie_header(fresh, scope["scheme"] == "https"))
            await send(message)

        return sent

    async def _refuse(self, error: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
        await _sentence(error.status_code, str(error.detail))(scope, receive, send)


def cookie_header(value: str, secure: bool) -> str:
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _open(path: str) -> bool:
    return path == "/login" or path.startswith("/static/")


def _page(headers: Headers, scope: Scope) -> bool:
    return "text/html" in headers.get("accept", "") and not scope["path"].endswith(".json")


def _sentence(status: int, words: str) -> Response:
    return Response(
        json.dumps({"detail": words}), status, {"retry-after": "60"} if status == 429 else None, "application/json"
    )


def _length(headers: Headers) -> None:
    said = headers.get("content-length", "0")
    if not said.isdecimal() or int(said) > MOST_BYTES:
        raise too_large()


def too_large() -> HTTPException:
    return HTTPException(
        413, f"This file is larger than {MOST_BYTES // 2**20} MB; use `aicau` on the command line for it."
    )


def _limited(receive: Receive) -> Receive:
    """No more bytes than an upload may have, whatever its header said."""
    total = 0

    async def received() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MOST_BYTES:
            raise too_large()
        return message

    return received


def changing(
    request: Request,
    csrf: Annotated[str, Form(description="The hidden field of every form.", max_length=200)] = "",
    x_csrf_token: Annotated[str, Header(description="In place of the field.", max_length=200)] = "",
) -> None:
    """What every change needs: a form of our own page, or the token itself in the header."""
    state = request.state
    guard: Guard = request.app.state.guard
    word = (csrf or x_csrf_token).encode()
    if not state.bearer and not hmac.compare_digest(word, guard.csrf(state.cookie).encode()):
        raise HTTPException(403, "This page is older than the server; reload it and try again.")
