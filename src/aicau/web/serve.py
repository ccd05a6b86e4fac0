"""The server: `aicau serve`."""

import hashlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException as HTTPError
from starlette.middleware.gzip import GZipMiddleware

import aicau
from aicau.core.errors import AicauError, InputError, StoreError
from aicau.report.page import environment
from aicau.web import changes, pages
from aicau.web.library import Library, sentence
from aicau.web.plain import plain
from aicau.web.render import Kept, rendered
from aicau.web.security import LOOPBACK, Gate, Guard, refusal, wants_page

ASSETS = {
    "web.css": files("aicau.web") / "static/web.css",
    "app.js": files("aicau.web") / "static/app.js",
    "report.css": files("aicau.report") / "templates/report.css",
}


def make_app(places: Sequence[str], token: str | None = None, hosts: Sequence[str] = ()) -> FastAPI:
    """The pages of some campaigns, as an ASGI application.

    Parameters
    ----------
    places : sequence of str
        Files of campaigns, postgresql:// addresses, or folders whose *.db files are shown.
    token : str, optional
        Without it everybody who reaches the server may look and change.
    hosts : sequence of str
        Names that the server answers to, beside those of this machine.
    """
    library = Library(places)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        library.close()

    app = FastAPI(title="aicau", version=aicau.__version__, docs_url=None, redoc_url=None, lifespan=life)
    guard = Guard(token, hosts)
    templates = environment("aicau.web", "aicau.report")
    templates.filters["plain"] = plain
    loaded = {name: file.read_bytes() for name, file in ASSETS.items()}
    stamps = {name: f"/static/{name}?{hashlib.sha256(data).hexdigest()[:8]}" for name, data in loaded.items()}
    app.state.library, app.state.guard, app.state.kept = library, guard, Kept()
    app.state.templates, app.state.assets = templates, stamps

    @app.get("/static/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in loaded:
            raise HTTPException(404, "There is no such file.")
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(
            loaded[name], media_type="text/css" if name.endswith("css") else "text/javascript", headers=kept
        )

    app.include_router(pages.router)
    app.include_router(changes.router)
    app.add_exception_handler(AicauError, _refused)
    app.add_exception_handler(HTTPError, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_middleware(GZipMiddleware, minimum_size=20_000, compresslevel=1)
    app.add_middleware(Gate, guard=guard)
    return app


def _refused(request: Request, error: Exception) -> Response:
    """One sentence, as a page or as JSON."""
    if isinstance(error, HTTPError):
        status, words = error.status_code, str(error.detail)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        status, words = 422, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}."
    else:
        status = 503 if isinstance(error, StoreError) else 400
        words = sentence(error) if isinstance(error, AicauError) else "Something went wrong."
    if wants_page(request):
        return rendered(request, "problem.html.j2", status, words=words)
    return refusal(status, words)


def serve(places: Sequence[str], host: str = "127.0.0.1", port: int = 8765, token: str | None = None) -> None:
    """Serve until it is stopped; prints the address first."""
    import uvicorn

    if host not in LOOPBACK and not token:
        raise InputError(f"{host} can be reached by others, so it needs a token; add --token with a long random word")
    if token is not None and len(token) < 8:
        raise InputError("a token has at least 8 characters; choose a longer one")
    both = host == "::" and socket.has_dualstack_ipv6()
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:  # whoever opens the printed address at once waits for the server
        bound = socket.create_server((host, port), family=kind, backlog=2048, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        words = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise InputError(f"cannot listen at {host}, port {port}: {words}; choose another --port") from error
    hosts, everywhere = {host, socket.gethostname(), socket.getfqdn()}, host in ("0.0.0.0", "::")
    if everywhere:  # whatever others may call this machine
        with suppress(OSError):
            hosts |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    app = make_app(places, token, sorted(hosts))
    shown = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
    print(f"open http://{shown}:{bound.getsockname()[1]}/{'login' if token else ''} (stop with Ctrl-C)", flush=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=5
    )
    uvicorn.Server(config).run(sockets=[bound])
