"""What pages show, each also as JSON. Nothing here writes, fits or waits: what is long is asked of the background process."""

import functools
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from aicau import tables
from aicau.campaign.campaign import Campaign
from aicau.core.errors import AicauError
from aicau.tables import candidates as columns
from aicau.web import candidates
from aicau.web.candidates import STATES
from aicau.web.library import Library, Upload
from aicau.web.plain import plain, plates

router = APIRouter()
Key = Annotated[str, Query()]
KINDS = {"csv": "text/csv", "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"}
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
    """A page from a template, with what every page needs."""
    state, app = request.state, request.app.state
    common = {
        "csrf": app.guard.csrf(state.cookie) if state.cookie else "",
        "name": request.cookies.get("aicau_name", ""),
        "nav": NAV,
        "assets": app.assets,
        "path": request.url.path,
        "query": dict(request.query_params),
        "key": None,
    }
    return HTMLResponse(app.templates.get_template(template).render(**common | data), code)


def page(path: str, template: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """Two routes for one view: the page, and `.json` with the same data."""

    def add(view: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(view)
        def as_page(request: Request, **options: Any) -> HTMLResponse:
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
        "status": campaign.status(),
        "settings": {name: settings.get(name) for name in ("id", "target", "batch", "task", "strategy", "seed")},
        "job": None if job is None else job.shown(),
        "model": model,
        "look": view.result,
    }


@page("/", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    """All campaigns that this server shows."""
    rows = []
    for key in library(request).keys():
        try:
            rows.append({"key": key, "problem": "", **library(request).at(key).status()})
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
    if asked is not None and asked.campaign == key and asked.verb == "ask" and asked.over:
        preview = asked.result if asked.arguments.get("preview") else None
        data["problem"] = asked.error
    id = campaign.settings["id"]
    if preview:
        rows, states, number = preview["rows"], ["preview"] * len(preview["rows"]), None
    else:
        frame, states, number = campaign.last_batch()
        rows = [] if frame is None else frame.to_dict("records")
    names = {c["name"] for c in campaign.settings["columns"]}
    shown = plain([{"id": str(row[id]), "state": state, **row} for row, state in zip(rows, states, strict=True)])
    reasons = [name for name in (rows[0] if rows else ()) if name.startswith("reason_")]
    return data | {
        "round": number,
        "preview": bool(preview),
        "rows": shown,
        "features": sorted(names & set(rows[0] if rows else ()), key=list(rows[0] if rows else ()).index),
        "reasons": reasons,
        "plates": plates(shown),
        "pending": campaign.status()["pending"],
        "problem": data.get("problem", ""),
    }


@page("/c/{key}/results", "results.html.j2")
def results(request: Request, key: str) -> dict[str, Any]:
    """Where results are dropped, and what was told so far."""
    data = basis(request, key)
    campaign = opened(request, key)
    return data | {"columns": [campaign.settings["id"], campaign.settings["target"], campaign.settings["batch"]]}


@page("/c/{key}/results/{number}", "check.html.j2")
def check(request: Request, key: str, number: str, correct: bool = False) -> dict[str, Any]:
    """What a dropped file would change, row by row; nothing is stored yet."""
    data = basis(request, key)
    upload = _upload(request, number, key)
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


def _upload(request: Request, number: str, key: str = "") -> Upload:
    try:
        return library(request).upload(number, key)
    except LookupError:
        raise HTTPException(404, "This file is not here any more; drop it again.") from None


@page("/c/{key}/map", "map.html.j2")
def map_(
    request: Request,
    key: str,
    x: Annotated[str, Query(max_length=200)] = "",
    y: Annotated[str, Query(max_length=200)] = "",
    colour: Annotated[str, Query(max_length=200)] = "",
    x0: float | None = None,
    x1: float | None = None,
    y0: float | None = None,
    y1: float | None = None,
) -> dict[str, Any]:
    """Candidates in two dimensions, coloured by what is predicted of them; a window shows a part of them."""
    data = basis(request, key)
    table, view = library(request).candidates(key)
    if table is None:
        return data | {"map": None, "table": _waiting(view)}
    x, y = x or table.places()[0], y or table.places()[min(1, len(table.places()) - 1)]
    colour = colour or next(iter(table.colours()), "")
    inf = float("inf")
    for name in (x, y):
        if name not in table.places():
            raise HTTPException(404, "There is no such column.")
    window = {x: (-inf if x0 is None else x0, inf if x1 is None else x1)}
    low, high = window.get(y, (-inf, inf))
    window[y] = (max(low, -inf if y0 is None else y0), min(high, inf if y1 is None else y1))
    mask = table.found("", None, window)
    drawn = table.map(x, y, colour, mask)
    moment = opened(request, key).moment()
    measured = {row.candidate for row in moment.rows}
    for name, some in (("measured", measured), ("pending", moment.pending)):
        drawn[name] = table.marks(x, y, drawn["ends"], some, mask)
    rows, total = table.rows(mask, colour, True, 1)
    zoomed = any(end is not None for end in (x0, x1, y0, y1))
    options = {"places": table.places(), "colours": table.colours(), "colour": colour, "zoomed": zoomed}
    return data | {"map": drawn, "rows": rows[:20], "total": total, "names": table.said, **options}


@page("/c/{key}/candidates", "candidates.html.j2")
def all_candidates(
    request: Request,
    key: str,
    q: Annotated[str, Query(max_length=200)] = "",
    sort: Annotated[str, Query(max_length=200)] = "",
    down: bool = False,
    show: Literal["all", "measured", "pending", "excluded"] = "all",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> dict[str, Any]:
    """Candidates with predictions: found, sorted, page by page."""
    data = basis(request, key)
    table, view = library(request).candidates(key)
    if table is None:
        return data | {"rows": None, "table": _waiting(view)}
    moment = opened(request, key).moment()
    states = {**dict.fromkeys((row.candidate for row in moment.rows), "measured")}
    states |= dict.fromkeys(moment.barred, "excluded") | dict.fromkeys(moment.pending, "pending")
    only = None if show == "all" else [at for at, state in states.items() if state == show]
    mask = table.found(q, only, {})
    rows, total = table.rows(mask, sort, down, page)
    for row in rows:
        row["state"] = states.get(row["number"], "")
    pages = -(-total // candidates.PAGE)
    names = {"said": table.said, "features": table.pool, "id": table.id, "states": STATES}
    search = {"q": q, "sort": sort, "down": down, "show": show, "page": page}
    return data | names | {"rows": rows, "total": total, "pages": pages, "search": search}


def _waiting(view: Any) -> dict[str, Any]:
    return {"step": view.job.step if view.job else "", "error": view.failed[1]}


@page("/c/{key}/noise", "noise.html.j2")
def noise(request: Request, key: str) -> dict[str, Any]:
    """How far replicates scatter, what plates share, and what is unusual."""
    data = basis(request, key)
    contents = (data["look"] or {}).get("contents")
    if contents is None:
        return data | {"noise": None, "labels": None, "unusual": []}
    return data | {"noise": contents.noise, "labels": contents.labels, "unusual": contents.unusual}


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
    steps = [one.step for one in busy if one is not None and not one.over]
    return JSONResponse({"busy": bool(steps), "step": next(iter(steps), "")})


@page("/new/{number}", "create.html.j2")
def understood(
    request: Request,
    number: str,
    id: Annotated[str, Query(max_length=200)] = "",
    ignore: Annotated[list[str] | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """What was understood of a table of candidates, to be corrected before a campaign is made of it."""
    upload = _upload(request, number)
    found: dict[str, Any] = {"file": upload.name, "number": number, "problem": "", "columns": [], "notes": []}
    found |= {"rows": 0, "names": [], "sample": [], "id": id, "ignore": ignore or []}
    try:
        sheet = tables.read(upload.path)
        names = sheet.table.column_names
        likely = [n for n in names if n.strip().casefold() in ("id", "compound", "sample", "name")]
        found["id"] = id = id if id in names else (likely or names)[0]
        found |= {"rows": sheet.rows, "names": names, "sample": sheet.table.slice(0, 5).to_pylist()}
        found["columns"] = columns.describe(sheet, id, [name for name in found["ignore"] if name in names])
    except AicauError as error:
        found["problem"] = str(error)
    return found | {"suggested": Path(upload.name).stem.replace(" ", "-")[:60]}


@router.get("/c/{key}/batch.{kind}", summary="The pending points as a file for the laboratory.")
def batch_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    frame = opened(request, key).pending()
    return _file(pa.Table.from_pandas(frame, preserve_index=False), f"{key}-batch.{kind}")


@router.get("/c/{key}/predictions.{kind}", summary="Every candidate with what is predicted of it.")
def predictions_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    opened(request, key)
    table, _ = library(request).candidates(key)
    if table is None or not table.said:
        raise HTTPException(404, "There are no predictions yet; update the model first.")
    names = {f"{candidates.POOL}{table.id}": table.id} | {f"{candidates.SAID}{name}": name for name in table.said}
    return _file(table.table.select(list(names)).rename_columns(list(names.values())), f"{key}-predictions.{kind}")


def _file(table: pa.Table, name: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        tables.write([table], path)
        data = path.read_bytes()
    return _download(data, name, KINDS[path.suffix[1:]])


def _download(data: bytes, name: str, kind: str) -> Response:
    return Response(data, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


@router.get("/c/{key}/everything.zip", summary="The whole campaign as plain files, as `aicau export` writes them.")
def everything(request: Request, key: str) -> Response:
    campaign = opened(request, key)
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        files = campaign.export(Path(folder) / key)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.relative_to(folder))
    return _download(packed.getvalue(), f"{key}.zip", "application/zip")
