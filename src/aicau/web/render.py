"""Pages: one view gives a page (by a template) and its JSON; a page is rendered once for all who look at it.

A rendered page is kept with what it depends on: the version of the campaign and, where it shows them, the report and
the table of candidates. What differs between people (the hidden word of forms, a name) and the work under way are put
in when the page is sent. One thread at a time renders the pages of a campaign; meanwhile others get the page of a
moment ago, but never one from before their own last change.
"""

import functools
import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from markupsafe import escape

from aicau.campaign.campaign import Campaign
from aicau.web.library import Library
from aicau.web.plain import plain

router = APIRouter()
MOST_KEPT, MOST_PEOPLE = 300, 10_000  # rendered pages, and browsers whose last change is remembered
MOMENT = 1.0  # seconds that a page may be behind while it is rendered anew
CSRF, NAME, WORK = (f"mark-{secrets.token_hex(16)}" for _ in range(3))  # replaced when a kept page is sent
DRAWN = ("look", "shapes")  # of a view: for the template only
SHOWN = ("id", "target", "batch", "task", "strategy", "seed", "goal", "weight", "cost", "scale")  # settings
NAV = {name: name.capitalize() for name in ("overview", "next", "results", "map", "candidates", "noise", "history")}
NAV["next"] = "Next batch"
View = Callable[..., dict[str, Any]]


@dataclass
class Page:
    """A rendered page."""

    stamp: Any  # what it depends on
    text: str
    good: float  # when it was last known to be up to date


class Kept:
    """Rendered pages, and when each browser last changed or learned something."""

    def __init__(self) -> None:
        self.pages: OrderedDict[str, Page] = OrderedDict()
        self.seen: OrderedDict[str, float] = OrderedDict()
        self.turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # of each campaign

    def knows(self, cookie: str) -> None:
        """This browser changed or learned something: from now on it gets no older page."""
        self.seen[cookie] = time.monotonic()
        self.seen.move_to_end(cookie)
        while len(self.seen) > MOST_PEOPLE:
            self.seen.popitem(last=False)

    def page(self, place: str, key: str, cookie: str, stamp: Callable[[], Any], render: Callable[[], str]) -> str:
        """The text of a page: kept, rendered here, or the last one while another thread renders."""
        now = time.monotonic()
        held, current = self.pages.get(place), stamp()
        if held is not None and held.stamp == current:
            held.good = now
            return held.text
        fresh = held is not None and held.good >= max(self.seen.get(cookie, 0.0), now - MOMENT)
        if not self.turns[key].acquire(blocking=not fresh):
            assert held is not None
            return held.text
        try:
            now, current = time.monotonic(), stamp()
            held = self.pages.get(place)  # another may have rendered it since
            if held is None or held.stamp != current:
                held = self.pages[place] = Page(current, render(), now)
                while len(self.pages) > MOST_KEPT:
                    self.pages.popitem(last=False)
            return held.text
        finally:
            self.turns[key].release()


def library(request: Request) -> Library:
    found: Library = request.app.state.library
    return found


def told(request: Request, data: Any) -> JSONResponse:
    """An answer as JSON; from now on this browser gets no older page."""
    request.app.state.kept.knows(request.state.cookie)
    return JSONResponse(data)


def author(request: Request) -> str:
    """The name that this browser gave; it is quoted, as cookies are ASCII."""
    return unquote(request.cookies.get("aicau_name", "")).strip()[:100]


class Visit:
    """A request about a campaign: the campaign in the name of the user, and what was computed of it."""

    def __init__(self, request: Request, key: str) -> None:
        self.request, self.key, self.library = request, key, library(request)
        self.entry = self.library.at(key)
        self.read = self.entry.read

    @cached_property
    def campaign(self) -> Campaign:
        return Campaign(self.entry.campaign.store, author(self.request) or None)

    @cached_property
    def look(self) -> dict[str, Any]:
        """The contents and figures of the report; empty until they are computed."""
        return self.entry.look().result or {}

    @property
    def settings(self) -> dict[str, Any]:
        return self.campaign.settings

    def basis(self) -> dict[str, Any]:
        """The data of every page of a campaign: counts, settings, the work under way, the state of the model."""
        job = self.library.worker.of(self.key)
        ready = {"ready": bool(self.look.get("every")), "missing": self.look.get("missing", "")}
        return {
            "key": self.key,
            "status": self.read("status"),
            "settings": {name: self.settings.get(name) for name in SHOWN},
            "job": None if job is None else job.shown(),
            "model": ready | self.entry.work(),
            "look": self.look,
        }


Visitor = Annotated[Visit, Depends()]


def rendered(request: Request, template: str, code: int = 200, **data: Any) -> HTMLResponse:
    return HTMLResponse(_own(request, _text(request, template, data), data.get("key")), code)


def _text(request: Request, template: str, data: dict[str, Any]) -> str:
    """The page for everybody, with marks for what differs between people."""
    app = request.app.state
    common = {"csrf": CSRF, "name": NAME, "work": WORK, "nav": NAV, "assets": app.assets, "path": request.url.path}
    common |= {"key": None, "query": dict(request.query_params)}
    text: str = app.templates.get_template(template).render(**common | data)
    return text


def _own(request: Request, text: str, key: str | None) -> str:
    """The page for one person, with the work under way."""
    app, cookie = request.app.state, request.state.cookie
    if key is not None:
        said = app.templates.get_template("work.html.j2").render(
            key=key, csrf=CSRF, back=request.url.path.split("/")[3], **library(request).at(key).work()
        )
        text = text.replace(WORK, said, 1)
    text = text.replace(CSRF, app.guard.csrf(cookie) if cookie else "")
    return text.replace(NAME, str(escape(author(request))))


def page(path: str, template: str, *needs: str) -> Callable[[View], View]:
    """Two routes for one view: the page, and `.json` with the same data. `needs`: what it shows of `look`, `table`."""

    def add(view: View) -> View:
        def data(options: dict[str, Any]) -> dict[str, Any]:
            own = view(**options)
            return options["visit"].basis() | own if "visit" in options else own

        @functools.wraps(view)
        def as_page(**options: Any) -> HTMLResponse:
            visit: Visit | None = options.get("visit")
            if visit is None or "number" in options:
                return rendered(options["request"] if visit is None else visit.request, template, **data(options))
            text = visit.request.app.state.kept.page(
                str(visit.request.url),
                visit.key,
                visit.request.state.cookie,
                lambda: visit.entry.stamp(needs, options.get("job", "")),
                lambda: _text(visit.request, template, data(options)),
            )
            return HTMLResponse(_own(visit.request, text, visit.key))

        @functools.wraps(view)
        def as_json(**options: Any) -> JSONResponse:
            found = {name: value for name, value in data(options).items() if name not in DRAWN}
            return told(options["visit"].request if "visit" in options else options["request"], plain(found))

        words = (view.__doc__ or "").strip()
        for route in (as_page, as_json):  # what a view gives is checked by its tests, not again for every request
            route.__annotations__ = {**view.__annotations__, "return": Response}
        json_path = f"{path if path != '/' else '/campaigns'}.json"
        router.add_api_route(json_path, as_json, summary=words, response_class=JSONResponse, response_model=None)
        router.add_api_route(path, as_page, summary=words, response_class=HTMLResponse, response_model=None)
        return view

    return add
