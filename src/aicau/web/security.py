"""Who may look and who may change: hosts, tokens, cookies, forged requests, sizes.

Everything is checked before a page sees the request. A cookie holds a random name and its signature; the word that
every form carries (CSRF) is signed with that name, so that another site can neither read nor make it.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Form, Header, HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "aicau"
HOST = r"[\w.:\[\]-]+"
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
    "cache-control": "no-store",
}


class Guard:
    """Tokens and signatures of one server."""

    def __init__(self, token: str | None, hosts: Iterable[str]) -> None:
        self.token = token
        self.hosts = {host.casefold().strip("[]") for host in (*LOOPBACK, *hosts)}
        self.key = hashlib.sha256(token.encode()).digest() if token else secrets.token_bytes(32)
        self.wrong: list[tuple[float, str]] = []  # when, and from which address

    def sign(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def cookie(self) -> str:
        name = secrets.token_hex(16)
        return f"{name}.{self.sign(f'cookie {name}')}"

    def valid(self, cookie: str) -> bool:
        name, _, signature = cookie.partition(".")
        return hmac.compare_digest(signature.encode(), self.sign(f"cookie {name}").encode())

    def csrf(self, cookie: str) -> str:
        return self.sign(f"csrf {cookie}")

    def check(self, word: str, client: str) -> bool:
        """Whether this is the token; after too many wrong ones all are refused for a while."""
        now = time.monotonic()
        self.wrong = [(at, who) for at, who in self.wrong if at > now - WINDOW]
        if len(self.wrong) >= MOST_WRONG_OVERALL or sum(who == client for _, who in self.wrong) >= MOST_WRONG:
            raise HTTPException(429, "There were too many wrong tokens; wait a minute and try again.")
        if self.token is not None and hmac.compare_digest(word.encode(), self.token.encode()):
            return True
        self.wrong.append((now, client))
        return False


class Gate:
    """Checks every request before a page sees it."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, app, total = Request(scope), self.app, 0
        state = request.state
        state.cookie, state.bearer, state.fresh = "", False, ""  # fresh: a cookie to hand out with the answer

        async def limited() -> Message:
            """Refuse more bytes than an upload may have, whatever its header said."""
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > MOST_BYTES:
                raise too_large()
            return message

        async def guarded(message: Message) -> None:
            """The answer with our headers, and with a new cookie where there is one."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if state.fresh:
                    secure = "; Secure" if scope["scheme"] == "https" else ""
                    headers.append("set-cookie", f"{COOKIE}={state.fresh}; Path=/; HttpOnly; SameSite=Strict{secure}")
            await send(message)

        try:
            self._origin(request)
            self._who(request)
            if not (length := request.headers.get("content-length", "0")).isdecimal() or int(length) > MOST_BYTES:
                raise too_large()
            if not (state.cookie or state.bearer or scope["path"] == "/login" or scope["path"].startswith("/static/")):
                to_login = wants_page(request)
                app = RedirectResponse("/login", 303) if to_login else refusal(401, "Log in at /login first.")
        except HTTPException as error:
            state.fresh, app = "", refusal(error.status_code, error.detail)
        await app(scope, limited, guarded)

    def _origin(self, request: Request) -> None:
        """Refuse other names of this server, and changes that come from other sites."""
        headers, found = request.headers, request.headers.getlist("host")
        name = urlsplit(f"//{found[0]}").hostname if len(found) == 1 and re.fullmatch(HOST, found[0]) else None
        if name is None or name.casefold() not in self.guard.hosts:
            raise HTTPException(421, "This server does not answer to that name; use the address that it printed.")
        if request.method not in ("GET", "HEAD"):
            origin = headers.get("origin")
            same = origin is None or urlsplit(origin).netloc.casefold() == found[0].casefold()
            if not same or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise HTTPException(403, "This request came from another site; open the page itself.")

    def _who(self, request: Request) -> None:
        """Find out who asks (by the token, our cookie, or a new one), for the state of the request."""
        kind, _, word = request.headers.get("authorization", "").partition(" ")
        held = request.cookies.get(COOKIE, "")
        if self.guard.token is not None and kind.casefold() == "bearer":
            if not self.guard.check(word.strip(), request.client.host if request.client else ""):
                raise HTTPException(401, "This is not the token.")
            request.state.bearer = True
        elif self.guard.valid(held):
            request.state.cookie = held
        elif self.guard.token is None:
            request.state.cookie = request.state.fresh = self.guard.cookie()


def wants_page(request: Request) -> bool:
    """Whether a person asks; a program gets JSON."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].endswith(".json")


def refusal(status: int, words: str) -> Response:
    return JSONResponse({"detail": words}, status, {"retry-after": "60"} if status == 429 else None)


def too_large() -> HTTPException:
    words = f"This file is larger than {MOST_BYTES // 2**20} MB; use `aicau` on the command line for it."
    return HTTPException(413, words)


def changing(
    request: Request,
    csrf: Annotated[str, Form(description="The hidden field of every form.", max_length=200)] = "",
    x_csrf_token: Annotated[str, Header(description="In place of the field.", max_length=200)] = "",
) -> None:
    """Refuse changes without the word of our forms, or the token in the header."""
    state = request.state
    guard: Guard = request.app.state.guard
    word = (csrf or x_csrf_token).encode()
    if not state.bearer and not hmac.compare_digest(word, guard.csrf(state.cookie).encode()):
        raise HTTPException(403, "This page is older than the server; reload it and try again.")
