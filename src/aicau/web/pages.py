"""What pages show, each also as JSON. Nothing here writes, fits or waits: the background process does what is long."""

import functools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from markupsafe import escape

from aicau import tables
from aicau.campaign.campaign import Campaign
from aicau.campaign.plates import control_rows
from aicau.core.errors import AicauError
from aicau.tables import candidates as columns
from aicau.web.library import Library, Upload
from aicau.web.plain import plain, plates

router = APIRouter()
MOST_KEPT = 300  # rendered pages
SHOWN = ("id", "target", "batch", "task", "strategy", "seed", "goal", "weight", "cost", "scale")  # settings
CSRF, NAME = (f"mark-{secrets.token_hex(16)}" for _ in range(2))  # where each person's own words stand
FORM = ("n", "replicates", "goal", "weight", "budget")  # that a preview keeps
NAV = {
    "overview": "Overview",
    "next": "Next batch",
    "results": "Results",
    "map": "Map",
    "candidates": "Candidates",
    "noise": "Noise",
    "history": "History",
}


def library(request: Request) -> Library:
    found: Library = request.app.state.library
    return found


def rendered(request: Request, template: str, code: int = 200, **data: Any) -> HTMLResponse:
    """A page from a template, for whoever asks."""
    return HTMLResponse(_own(request, _text(request, template, data)), code)


def _text(request: Request, template: str, data: dict[str, Any]) -> str:
    """The page for everybody, with marks for what differs."""
    app = request.app.state
    common = {"csrf": CSRF, "name": NAME, "nav": NAV, "assets": app.assets, "path": request.url.path, "key": None}
    common["query"] = dict(request.query_params)
    text: str = app.templates.get_template(template).render(**common | data)
    return text


def _own(request: Request, text: str) -> str:
    """The same page for one person."""
    state = request.state
    text = text.replace(CSRF, request.app.state.guard.csrf(state.cookie) if state.cookie else "")
    return text.replace(NAME, str(escape(request.cookies.get("aicau_name", ""))))


def _kept(
    request: Request, template: str, view: Callable[..., dict[str, Any]], options: dict[str, Any]
) -> HTMLResponse:
    """A campaign's page, rendered once for all who look at it until something changes."""
    lib = library(request)
    opened(request, options["key"])
    stamp, place = lib.stamp(options["key"]), str(request.url)
    held = lib.pages.get(place)
    if held is None or held[0] != stamp:
        text = _text(request, template, view(request, **options))
        held = (stamp, text)
        with lib.lock:
            lib.pages[place] = held
            while len(lib.pages) > MOST_KEPT:
                lib.pages.popitem(last=False)
    return HTMLResponse(_own(request, held[1]))


def page(path: str, template: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """Two routes for one view: the page, and `.json` with the same data."""

    def add(view: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(view)
        def as_page(request: Request, **options: Any) -> HTMLResponse:
            if "key" in options and "number" not in options:
                return _kept(request, template, view, options)
            return rendered(request, template, **view(request, **options))

        @functools.wraps(view)
        def as_json(request: Request, **options: Any) -> JSONResponse:
            return JSONResponse(plain({k: v for k, v in view(request, **options).items() if k != "look"}))

        words = (view.__doc__ or "").strip()
        for route in (as_page, as_json):  # what a view gives is checked by its tests, not again for every request
            route.__annotations__ = {**view.__annotations__, "return": Response}
        json_path = f"{path if path != '/' else '/campaigns'}.json"
        router.add_api_route(json_path, as_json, summary=words, response_class=JSONResponse, response_model=None)
        router.add_api_route(path, as_page, summary=words, response_class=HTMLResponse, response_model=None)
        return view

    return add


def opened(request: Request, key: str) -> Campaign:
    try:
        return library(request).at(key)
    except LookupError:
        raise HTTPException(404, "There is no such campaign here.") from None


def basis(request: Request, key: str) -> dict[str, Any]:
    """What every page of a campaign shows: its counts, the work under way, and whether its model knows everything."""
    campaign = opened(request, key)
    view = library(request).look(key)
    found, job = view.result or {}, library(request).worker.of(key)
    model = {
        "ready": found.get("contents") is not None,
        "stale": bool(found.get("stale")),
        "computing": view.job is not None,
        "step": view.job.step if view.job else "",
        "error": view.failed[1] if view.job is None and view.failed[0] is not None else "",
        "missing": found.get("missing", ""),
    }
    settings = campaign.settings
    return {
        "key": key,
        "status": library(request).status(key),
        "settings": {name: settings.get(name) for name in SHOWN},
        "job": None if job is None else job.shown(),
        "model": model,
        "look": view.result,
    }


@page("/", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    """All campaigns that this server shows."""
    rows = []
    for key in library(request).all():
        try:
            rows.append({"key": key, "problem": "", **library(request).status(key)})
        except AicauError as error:
            rows.append({"key": key, "problem": str(error)})
    return {"campaigns": rows, "can_create": bool(library(request).folders)}


@page("/c/{key}/overview", "overview.html.j2")
def overview(request: Request, key: str) -> dict[str, Any]:
    """Where the campaign stands, how good its predictions are, and what to do next."""
    data = basis(request, key)
    contents = (data["look"] or {}).get("contents")
    progress = None if contents is None else contents.progress
    pending = data["status"]["pending"]
    step = (
        f"Measure the {pending} pending {'point' if pending == 1 else 'points'}, then drop the results."
        if pending
        else "Ask for the next batch."
    )
    return data | {
        "next_step": step,
        "advice": "" if progress is None else progress.advice,
        "progress": [] if progress is None else progress.rounds,
        "parts": [] if contents is None else contents.rounds,
    }


@page("/c/{key}/next", "next.html.j2")
def next_batch(request: Request, key: str, job: Annotated[str, Query(max_length=40)] = "") -> dict[str, Any]:
    """The last batch and its plate, or a preview of the next one."""
    data = basis(request, key)
    campaign, preview = opened(request, key), None
    asked = library(request).worker.jobs.get(job)
    if asked is not None and asked.campaign == key and asked.verb in ("ask", "change") and asked.over:
        preview = asked.result if asked.arguments.get("preview") else None
        data["chosen"] = {k: v for k, v in asked.arguments.items() if k in FORM} if preview else {}
        data["problem"] = asked.error
    settings = campaign.settings
    if preview:
        rows, states, number = preview["rows"], ["preview"] * len(preview["rows"]), None
    else:
        frame, states, number = campaign.last_batch()
        rows = [] if frame is None else control_rows(settings, frame).to_dict("records")
    points = sum(row["reason"] != "control" for row in rows)
    states = [*states[:points], *["control"] * (len(rows) - points)]
    id, names = settings["id"], {c["name"] for c in settings["columns"]}
    shown = plain([{"id": str(row[id]), "state": state, **row} for row, state in zip(rows, states, strict=True)])
    reasons = [name for name in (rows[0] if rows else ()) if name.startswith("reason_")]
    return data | {
        "round": number,
        "preview": bool(preview),
        "rows": shown,
        "points": points,
        "chosen": {"n": points or 8, "replicates": 1} | data.get("chosen", {}),
        "weights": [c["name"] for c in settings["columns"] if c["kind"] in ("number", "ignored")],
        "features": sorted(names & set(rows[0] if rows else ()), key=list(rows[0] if rows else ()).index),
        "reasons": reasons,
        "plates": plates(shown),
        "pending": data["status"]["pending"],
        "problem": data.get("problem", ""),
    }


@page("/c/{key}/results", "results.html.j2")
def results(request: Request, key: str) -> dict[str, Any]:
    """Where results are dropped, and what was told so far."""
    data = basis(request, key)
    campaign = opened(request, key)
    told = campaign.measurements().iloc[::-1]
    names = [campaign.settings["id"], campaign.settings["target"], campaign.settings["batch"]]
    return data | {"columns": names, "rows": told.head(200), "total": len(told)}


@page("/c/{key}/results/{number}", "check.html.j2")
def check(request: Request, key: str, number: str, correct: bool = False) -> dict[str, Any]:
    """What a dropped file would change, row by row; nothing is stored yet."""
    data = basis(request, key)
    upload = dropped(request, number, key)
    found: dict[str, Any] = {"file": upload.name, "number": number, "correct": correct, "said": upload.said}
    found |= {"rows": [], "names": [], "counts": {}, "problem": "", "outcomes": {}}
    if not upload.said:
        try:
            rows, counts = opened(request, key).check(upload.path, correct)
            found |= {"rows": rows, "counts": counts, "outcomes": rows.outcome.value_counts().to_dict()}
            found["names"] = [name for name in rows if name not in ("row", "outcome", "note")]
        except AicauError as error:
            found["problem"] = str(error)
    return data | found


def dropped(request: Request, number: str, key: str = "") -> Upload:
    try:
        return library(request).upload(number, key)
    except LookupError:
        raise HTTPException(404, "This file is not here any more; drop it again.") from None


@page("/c/{key}/noise", "noise.html.j2")
def noise(request: Request, key: str) -> dict[str, Any]:
    """How far replicates scatter, what plates share, and what may not be meant so."""
    data = basis(request, key)
    contents = (data["look"] or {}).get("contents")
    if contents is None:
        return data | {"noise": None, "labels": None}
    return data | {"noise": contents.noise, "labels": contents.labels}


@page("/c/{key}/history", "history.html.j2")
def history(request: Request, key: str) -> dict[str, Any]:
    """All that happened, newest first: who, when, what; and what can be taken back."""
    data = basis(request, key)
    campaign = opened(request, key)
    rows = plain(campaign.history().iloc[::-1])
    current = set(campaign.measurements()["tell"])
    for row in rows:
        row["standing"] = row["what"] == "tell" and row["number"] in current
    return data | {"rows": rows}


@router.get("/jobs/{number}.json", summary="How far a piece of long work is.")
def job(request: Request, number: str) -> JSONResponse:
    found = library(request).worker.jobs.get(number)
    if found is None:
        raise HTTPException(404, "There is no such work; the server may have been started anew.")
    return JSONResponse(found.shown())


@router.get("/c/{key}/state.json", summary="What a page that waits needs to know: nothing is computed for it.")
def state(request: Request, key: str) -> JSONResponse:
    opened(request, key)
    lib = library(request)
    busy = [lib.worker.of(key), lib.look(key).job, lib.candidates(key)[1].job]
    steps = [one.step or "finishing" for one in busy if one is not None]  # one that ended just now counts once more
    return JSONResponse({"busy": bool(steps), "step": next(iter(steps), "")})


@page("/new/{number}", "create.html.j2")
def understood(
    request: Request,
    number: str,
    id: Annotated[str, Query(max_length=200)] = "",
    ignore: Annotated[list[str] | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """What was understood of a table of candidates, to be corrected before a campaign is made of it."""
    upload = dropped(request, number)
    found: dict[str, Any] = {"file": upload.name, "number": number, "problem": "", "columns": [], "notes": []}
    found |= {"rows": 0, "names": [], "sample": [], "id": id, "ignore": ignore or []}
    try:
        sheet = tables.read(upload.path)
        names = sheet.table.column_names
        likely = [n for n in names if n.strip().casefold() in ("id", "compound", "sample", "name")]
        found["id"] = id = id if id in names else (likely or names)[0]
        found |= {"rows": sheet.rows, "names": names, "sample": sheet.table.slice(0, 5).to_pylist()}
        found["columns"] = columns.describe(sheet, id, [name for name in found["ignore"] if name in names])
        found["notes"] = [*sheet.notes, *columns.notes(found["columns"], sheet.rows)]
    except AicauError as error:
        found["problem"] = str(error)
    return found | {"suggested": Path(upload.name).stem.replace(" ", "-")[:60]}
