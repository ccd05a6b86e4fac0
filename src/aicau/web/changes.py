"""What pages change. Every route needs a form of our own page (CSRF) or the token, and answers with a page to go to."""

from typing import Annotated, Any, Literal

import pandas as pd
from fastapi import APIRouter, Depends, File, Form, HTTPException, Request, UploadFile
from fastapi.responses import JSONResponse, RedirectResponse, Response

from aicau.campaign.layout import read_controls
from aicau.core.errors import AicauError, InputError
from aicau.tables.results import summary
from aicau.web.library import sentence
from aicau.web.pages import dropped
from aicau.web.render import knows, library, opened, rendered, wants_page
from aicau.web.security import changing, cookie_header

router = APIRouter(dependencies=[Depends(changing)])
open_router = APIRouter()
Word = Annotated[str, Form(max_length=200)]
Ids = Annotated[list[str], Form(max_length=1000)]
Number = Annotated[float | None, Form(allow_inf_nan=False)]


def answer(request: Request, to: str, **data: Any) -> Response:
    """Back to a page; where JSON is wanted, what happened."""
    knows(request)
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"page": to, **data})
    return RedirectResponse(to, 303)


def author(request: Request) -> str:
    return request.cookies.get("aicau_name", "").strip()[:100]


def start(request: Request, key: str, verb: str, /, once: bool = False, **arguments: Any) -> str:
    """A job for the background process; gives its number."""
    who = opened(request, key).author if not author(request) else author(request)
    lib = library(request)
    return lib.worker.submit(verb, key, once, address=lib.files[key], author=who, **arguments).id


def _goal(goal: str, threshold: float | None) -> str:
    """As `Campaign` writes it; a threshold of its own is for above and below only."""
    return f"{goal}:{threshold}" if goal in ("above", "below") and threshold is not None else goal


@router.post("/name", summary="Who you are, for the history.")
def name(request: Request, name: Word = "", back: Word = "/") -> Response:
    to = back if back.startswith("/") and not back.startswith("//") and "\\" not in back else "/"
    response = answer(request, to)
    response.set_cookie(
        "aicau_name", "".join(c for c in name if c.isprintable())[:100], httponly=True, samesite="strict"
    )
    return response


@router.post("/new", summary="Drop a table of candidates.")
def drop_candidates(request: Request, file: Annotated[UploadFile, File()]) -> Response:
    number = library(request).keep(file.filename, file.file.read())
    return answer(request, f"/new/{number}", upload=number)


@router.post("/new/{number}", summary="Make a campaign of a dropped table, or read its columns again.")
def create(
    request: Request,
    number: str,
    name: Word = "",
    target: Word = "",
    id: Word = "",
    batch: Word = "",
    task: Word = "regression",
    ignore: Ids = [],  # noqa: B006
    goal: Word = "map",
    threshold: Number = None,
    weight: Word = "",
    scale: Word = "linear",
    cost: Word = "",
    layout: Annotated[Literal["", "96", "384"], Form()] = "",  # never a path
    controls: Word = "",
    avoid_edges: Annotated[bool, Form()] = False,
    again: Annotated[bool, Form()] = False,
) -> Response:
    form = {word: value for word, value in locals().items() if word not in ("request", "number", "again")}
    upload, lib = dropped(request, number), library(request)
    upload.form, upload.problem = form, ""
    if again:
        return answer(request, f"/new/{number}")
    try:
        key, address = lib.new_address(name)
        targets = [word.strip() for word in target.split(",") if word.strip()]
        options: dict[str, Any] = {"target": targets if len(targets) > 1 else target, "batch": batch.strip() or None}
        options |= {"id": id, "task": task}
        options |= {"goal": _goal(goal, threshold), "weight": weight or None, "scale": scale, "cost": cost or None}
        names = [word for word in controls.split(",") if word.strip()]
        options |= {"layout": layout or None, "controls": read_controls(names), "edges": not avoid_edges}
    except AicauError as error:
        if not wants_page(request):
            raise
        upload.problem = sentence(error)
        return RedirectResponse(f"/new/{number}", 303)
    options |= {"ignore": ignore, "author": author(request) or None}
    job = lib.worker.submit("create", key, address=address, table=str(upload.path), options=options)
    return answer(request, f"/new/{number}/making/{job.id}", job=job.id)


@open_router.get("/new/{number}/making/{job}", summary="A campaign is being made.")
def making(request: Request, number: str, job: str) -> Response:
    found = library(request).worker.jobs.get(job)
    if found is None or found.verb != "create":
        raise HTTPException(404, "There is no such work; the server may have been started anew.")
    if found.state == "done":
        return RedirectResponse(f"/c/{found.campaign}/next", 303)
    if found.error:  # back to the form, as it was filled in
        dropped(request, number).problem = found.error
        return RedirectResponse(f"/new/{number}", 303)
    return rendered(request, "making.html.j2", job=found.shown())


@router.post("/c/{key}/ask", summary="Ask for the next batch, or only look at it.")
def ask(
    request: Request,
    key: str,
    n: Annotated[int, Form(ge=1, le=100_000)],
    replicates: Annotated[int, Form(ge=1, le=100)] = 1,
    preview: Annotated[bool, Form()] = False,
    request_name: Word = "",
    goal: Word = "",
    threshold: Number = None,
    weight: Word = "",
    budget: Number = None,
) -> Response:
    options: dict[str, Any] = {"n": n, "replicates": replicates, "budget": budget}
    options |= {"goal": _goal(goal, threshold) or None, "weight": weight or None}
    if preview:
        options["preview"] = True
    elif request_name:
        options["request"] = request_name
    job = start(request, key, "ask", **options)
    return answer(request, f"/c/{key}/next?job={job}", job=job)


@router.post("/c/{key}/fit", summary="Fit the model to all results.")
def fit(request: Request, key: str, back: Word = "overview") -> Response:
    job = start(request, key, "fit", once=True)
    return answer(request, f"/c/{key}/{back if back.isalpha() else 'overview'}", job=job)


@router.post("/c/{key}/abandon", summary="Pending points that will not be measured.")
def abandon(request: Request, key: str, ids: Ids) -> Response:
    opened(request, key)
    count = library(request).by(key, author(request)).abandon(ids)
    return answer(request, f"/c/{key}/next", abandoned=count)


@router.post("/c/{key}/failed", summary="Wells of pending points that failed: told as such, one for each id given.")
def failed(request: Request, key: str, ids: Ids, batch: Word = "") -> Response:
    opened(request, key)
    campaign = library(request).by(key, author(request))
    id, told, waiting = campaign.settings["id"], campaign.measurements(current=False), campaign.pending()
    numbers: list[
        tuple[str, int]
    ] = []  # each well is a replicate of its own, so that none is taken for one that is known
    for name in ids:
        if (waiting[id].astype(str) == name).sum() <= (seen := sum(other == name for other, _ in numbers)):
            raise InputError(f"{name!r} is not pending, so it cannot have failed; nothing was changed")
        known = told["replicate"][told[id].astype(str) == name]
        numbers.append((name, seen + 1 + max([len(known), *known.dropna()])))
    same = {campaign.settings["target"]: "", "status": "failed"}
    same |= {campaign.settings["batch"]: batch} if campaign.settings["batch"] else {}
    rows = pd.DataFrame(numbers, columns=[id, "replicate"]).assign(**same)
    return answer(request, f"/c/{key}/next", failed=campaign.tell(rows)["failed"])


@router.post("/c/{key}/exclude", summary="Candidates that are not proposed any more.")
def exclude(request: Request, key: str, ids: Ids, reason: Word) -> Response:
    opened(request, key)
    return answer(request, f"/c/{key}/candidates", **library(request).by(key, author(request)).exclude(ids, reason))


@router.post("/c/{key}/include", summary="Excluded or abandoned candidates may be proposed again.")
def include(request: Request, key: str, ids: Ids, reason: Word = "") -> Response:
    opened(request, key)
    count = library(request).by(key, author(request)).include(ids, reason)
    return answer(request, f"/c/{key}/candidates", included=count)


@router.post("/c/{key}/confirm", summary="Values that were pointed out are right.")
def confirm(request: Request, key: str, ids: Ids) -> Response:
    opened(request, key)
    count = library(request).by(key, author(request)).confirm(ids)
    return answer(request, f"/c/{key}/noise", confirmed=count)


@router.post("/c/{key}/untell", summary="Take back a tell, a correction or a renaming.")
def untell(request: Request, key: str, tell: Annotated[int, Form(ge=1, le=2**31)]) -> Response:
    opened(request, key)
    found = library(request).by(key, author(request)).untell(tell)
    start(request, key, "fit", once=True)
    return answer(request, f"/c/{key}/history", **found)


@router.post("/c/{key}/rename", summary="Another name for a plate.")
def rename(request: Request, key: str, old: Word, new: Word) -> Response:
    opened(request, key)
    count = library(request).by(key, author(request)).rename(old, new)
    start(request, key, "fit", once=True)
    return answer(request, f"/c/{key}/noise", renamed=count)


@router.post("/c/{key}/change", summary="Another strategy or plate from the next batch on.")
def change(
    request: Request,
    key: str,
    strategy: Word = "",
    layout: Annotated[Literal["", "96", "384", "none"], Form()] = "",  # never a path
    controls: Word = "",
    avoid_edges: Annotated[bool, Form()] = False,
) -> Response:
    names = [word for word in controls.split(",") if word.strip()]
    plate: dict[str, Any] = {"layout": layout or None, "controls": read_controls(names), "edges": not avoid_edges}
    job = start(request, key, "change", strategy=strategy or None, **plate)
    return answer(request, f"/c/{key}/next?job={job}", job=job)


@router.post("/c/{key}/results", summary="Drop a file of results; nothing is stored yet.")
def drop_results(request: Request, key: str, file: Annotated[UploadFile, File()]) -> Response:
    opened(request, key)
    number = library(request).keep(file.filename, file.file.read(), key)
    return answer(request, f"/c/{key}/results/{number}", upload=number)


@router.post("/c/{key}/results/{number}", summary="Store a dropped file: all of it or nothing.")
def tell(request: Request, key: str, number: str, correct: Annotated[bool, Form()] = False) -> Response:
    opened(request, key)
    upload = dropped(request, number, key)
    told: dict[str, Any] = {}
    if not upload.said:  # sent twice, stored once
        told = library(request).by(key, author(request)).tell(upload.path, correct)
        upload.said = summary(told)
        start(request, key, "fit", once=True)
    return answer(request, f"/c/{key}/results/{number}", said=upload.said, told=told)


@open_router.get("/login", summary="The form for the token.", response_model=None)
def login_form(request: Request, token: str = "") -> Response:
    return _log_in(request, token) if token else rendered(request, "login.html.j2", wrong=False)


@open_router.post("/login", summary="Hand in the token.", response_model=None)
def login(request: Request, token: Annotated[str, Form(max_length=500)]) -> Response:
    return _log_in(request, token)


def _log_in(request: Request, token: str) -> Response:
    guard = request.app.state.guard
    if guard.token is None:
        return RedirectResponse("/", 303)
    if not guard.check(token, request.client.host if request.client else ""):
        return rendered(request, "login.html.j2", 401, wrong=True)
    response = RedirectResponse("/", 303)
    response.headers.append("set-cookie", cookie_header(guard.cookie(), request.url.scheme == "https"))
    return response
