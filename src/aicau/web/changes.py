"""The changes that pages make. Every route needs a form of ours (CSRF) or the token, and answers with the next page."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pandas as pd
from fastapi import APIRouter, Depends, File, Form, HTTPException, Request, UploadFile
from fastapi.responses import RedirectResponse, Response

from aicau.campaign.layout import read_controls
from aicau.core.errors import AicauError, InputError
from aicau.tables.results import summary
from aicau.web.library import sentence
from aicau.web.render import Visit, author, library, rendered, told
from aicau.web.render import router as pages
from aicau.web.security import changing, wants_page

router = APIRouter(dependencies=[Depends(changing)])
Word = Annotated[str, Form(max_length=200)]
Ids = Annotated[list[str], Form(max_length=1000)]
Number = Annotated[float | None, Form(allow_inf_nan=False)]
Mark = Annotated[bool, Form()]
Dropped = Annotated[UploadFile, File()]


def answer(request: Request, to: str, **data: Any) -> Response:
    """Redirect to a page; as JSON, say what happened."""
    said = told(request, {"page": to, **data})
    return said if "application/json" in request.headers.get("accept", "") else RedirectResponse(to, 303)


class Change(Visit):
    """A request that changes a campaign: it starts long work, and answers with the next page."""

    def start(self, verb: str, once: bool = False, **arguments: Any) -> str:
        """Start a job; returns its number."""
        arguments |= {"address": self.entry.address, "author": self.campaign.author}
        return self.library.worker.submit(verb, self.key, once, **arguments).id

    def answer(self, page: str, **data: Any) -> Response:
        return answer(self.request, f"/c/{self.key}/{page}", **data)


Changing = Annotated[Change, Depends()]


@dataclass
class Goal:
    """The fields of a form about goal and weight."""

    goal: Word = ""
    threshold: Number = None
    weight: Word = ""

    def aims(self) -> dict[str, Any]:
        """As arguments of `Campaign`."""
        beyond = self.goal in ("above", "below") and self.threshold is not None
        found = {"goal": f"{self.goal}:{self.threshold}" if beyond else self.goal, "weight": self.weight}
        return {name: value for name, value in found.items() if value}


@dataclass
class Plate:
    """The fields of a form about a plate and its controls."""

    layout: Annotated[Literal["", "96", "384", "none"], Form()] = ""  # never a path
    controls: Word = ""
    avoid_edges: Mark = False

    def plate(self) -> dict[str, Any]:
        """As arguments of `Campaign`."""
        names = [word for word in self.controls.split(",") if word.strip()]
        return {"layout": self.layout or None, "controls": read_controls(names), "edges": not self.avoid_edges}


@dataclass
class NewCampaign(Goal, Plate):
    """The form of a new campaign."""

    layout: Annotated[Literal["", "96", "384"], Form()] = ""
    name: Word = ""
    target: Word = ""
    id: Word = ""
    batch: Word = ""
    task: Word = "regression"
    scale: Word = "linear"
    cost: Word = ""

    def options(self) -> dict[str, Any]:
        """As arguments of `Campaign.create`."""
        targets = [word.strip() for word in self.target.split(",") if word.strip()]
        found: dict[str, Any] = {"target": targets if len(targets) > 1 else self.target, "id": self.id}
        found |= {"batch": self.batch.strip() or None, "task": self.task, "scale": self.scale}
        return found | {"cost": self.cost or None} | self.aims() | self.plate()


@router.post("/name", summary="Set your name for the history.")
def name(request: Request, name: Word = "", back: Word = "/") -> Response:
    to = back if back.startswith("/") and not back.startswith("//") and "\\" not in back else "/"
    response = answer(request, to)
    kept = "".join(c for c in name if c.isprintable())[:100]
    response.set_cookie("aicau_name", quote(kept), httponly=True, samesite="strict")
    return response


@router.post("/new", summary="Upload a table of candidates.")
def drop_candidates(request: Request, file: Dropped) -> Response:
    number = library(request).keep(file.filename, file.file.read())
    return answer(request, f"/new/{number}", upload=number)


@router.post("/new/{number}", summary="Make a campaign of an uploaded table, or read its columns again.")
def create(
    request: Request,
    number: str,
    form: Annotated[NewCampaign, Depends()],
    ignore: Ids = [],  # noqa: B006
    again: Mark = False,
) -> Response:
    lib, upload = library(request), library(request).upload(number)
    upload.form, upload.problem = asdict(form) | {"ignore": ignore}, ""
    if again:
        return answer(request, f"/new/{number}")
    try:
        new = lib.new(form.name)
        options = form.options() | {"ignore": ignore, "author": author(request) or None}
    except AicauError as error:
        if not wants_page(request):
            raise
        upload.problem = sentence(error)
        return RedirectResponse(f"/new/{number}", 303)
    job = lib.worker.submit("create", new.key, address=new.address, table=str(upload.path), options=options)
    return answer(request, f"/new/{number}/making/{job.id}", job=job.id)


@pages.get("/new/{number}/making/{job}", summary="A campaign is being made.")
def making(request: Request, number: str, job: str) -> Response:
    found = library(request).worker.jobs.get(job)
    if found is None or found.verb != "create":
        raise HTTPException(404, "There is no such work; the server may have been started anew.")
    if found.state == "done":
        return RedirectResponse(f"/c/{found.campaign}/next", 303)
    if found.error:  # back to the form, as it was filled in
        library(request).upload(number).problem = found.error
        return RedirectResponse(f"/new/{number}", 303)
    return rendered(request, "making.html.j2", job=found.shown())


@router.post("/c/{key}/ask", summary="Ask for the next batch, or preview it.")
def ask(
    visit: Changing,
    n: Annotated[int, Form(ge=1, le=100_000)],
    goal: Annotated[Goal, Depends()],
    replicates: Annotated[int, Form(ge=1, le=100)] = 1,
    preview: Mark = False,
    request_name: Word = "",
    budget: Number = None,
) -> Response:
    options = {"n": n, "replicates": replicates, "budget": budget, "preview": preview} | goal.aims()
    job = visit.start("ask", **options, request=request_name if request_name and not preview else None)
    return visit.answer(f"next?job={job}", job=job)


@router.post("/c/{key}/fit", summary="Fit the model to all results.")
def fit(visit: Changing, back: Word = "overview") -> Response:
    job = visit.start("fit", once=True)
    return visit.answer(back if back.isalpha() else "overview", job=job)


@router.post("/c/{key}/abandon", summary="Give up pending points.")
def abandon(visit: Changing, ids: Ids) -> Response:
    return visit.answer("next", abandoned=visit.campaign.abandon(ids))


@router.post("/c/{key}/failed", summary="Tell that wells of pending points failed, one for each id.")
def failed(visit: Changing, ids: Ids, batch: Word = "") -> Response:
    campaign = visit.campaign
    id, told, waiting = campaign.settings["id"], campaign.measurements(current=False), campaign.pending()
    numbers: list[tuple[str, int]] = []  # new replicates, so that no well is taken for one that is known
    for name in ids:
        if (waiting[id].astype(str) == name).sum() <= (seen := sum(other == name for other, _ in numbers)):
            raise InputError(f"{name!r} is not pending, so it cannot have failed; nothing was changed")
        known = told["replicate"][told[id].astype(str) == name]
        numbers.append((name, seen + 1 + max([len(known), *known.dropna()])))
    same = dict.fromkeys(campaign.targets, "") | {"status": "failed"}
    same |= {campaign.settings["batch"]: batch} if campaign.settings["batch"] else {}
    rows = pd.DataFrame(numbers, columns=[id, "replicate"]).assign(**same)
    return visit.answer("next", failed=campaign.tell(rows)["failed"])


@router.post("/c/{key}/exclude", summary="Exclude candidates from all further batches.")
def exclude(visit: Changing, ids: Ids, reason: Word) -> Response:
    return visit.answer("candidates", **visit.campaign.exclude(ids, reason))


@router.post("/c/{key}/include", summary="Let excluded or abandoned candidates be proposed again.")
def include(visit: Changing, ids: Ids, reason: Word = "") -> Response:
    return visit.answer("candidates", included=visit.campaign.include(ids, reason))


@router.post("/c/{key}/confirm", summary="Confirm unusual values.")
def confirm(visit: Changing, ids: Ids) -> Response:
    return visit.answer("noise", confirmed=visit.campaign.confirm(ids))


@router.post("/c/{key}/untell", summary="Take back a tell, a correction or a renaming.")
def untell(visit: Changing, tell: Annotated[int, Form(ge=1, le=2**31)]) -> Response:
    found = visit.campaign.untell(tell)
    visit.start("fit", once=True)
    return visit.answer("history", **found)


@router.post("/c/{key}/rename", summary="Rename a plate.")
def rename(visit: Changing, old: Word, new: Word) -> Response:
    count = visit.campaign.rename(old, new)
    visit.start("fit", once=True)
    return visit.answer("noise", renamed=count)


@router.post("/c/{key}/change", summary="Change the strategy or the plate from the next batch on.")
def change(visit: Changing, plate: Annotated[Plate, Depends()], strategy: Word = "") -> Response:
    job = visit.start("change", strategy=strategy or None, **plate.plate())
    return visit.answer(f"next?job={job}", job=job)


@router.post("/c/{key}/results", summary="Upload a file of results; nothing is stored yet.")
def drop_results(visit: Changing, file: Dropped) -> Response:
    number = visit.library.keep(file.filename, file.file.read(), visit.key)
    return visit.answer(f"results/{number}", upload=number)


@router.post("/c/{key}/results/{number}", summary="Store an uploaded file: all of it or nothing.")
def tell(visit: Changing, number: str, correct: Mark = False) -> Response:
    upload, told = visit.library.upload(number, visit.key), {}
    if not upload.said:  # sent twice, stored once
        told = visit.campaign.tell(upload.path, correct)
        upload.said = summary(told)
        visit.start("fit", once=True)
    return visit.answer(f"results/{number}", said=upload.said, told=told)


@pages.get("/login", summary="The form for the token.", response_model=None)
def login_form(request: Request) -> Response:
    return rendered(request, "login.html.j2", wrong=False)


@pages.post("/login", summary="Log in with the token.", response_model=None)
def login(request: Request, token: Annotated[str, Form(max_length=500)]) -> Response:
    guard = request.app.state.guard
    if guard.token is None:
        return RedirectResponse("/", 303)
    if not guard.check(token, request.client.host if request.client else ""):
        return rendered(request, "login.html.j2", 401, wrong=True)
    request.state.fresh = guard.cookie()  # handed out with the answer
    return RedirectResponse("/", 303)
