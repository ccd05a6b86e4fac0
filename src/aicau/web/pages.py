"""The pages, each also as JSON, and the files they offer.

Nothing here writes, fits or waits: long work is done by the background process.
"""

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
from fastapi import Depends, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response

from aicau import tables
from aicau.campaign.plates import control_rows
from aicau.core.errors import AicauError
from aicau.tables import candidates as columns
from aicau.web.candidates import PAGE, POOL, SAID, Candidates, Window
from aicau.web.plain import plain, plates
from aicau.web.render import Visitor, library, page, router, told

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
KINDS = {"csv": "text/csv", "zip": "application/zip", "xlsx": XLSX}  # of files
Column = Annotated[str, Query(max_length=200)]
End = float | None
State = Literal["all", "measured", "pending", "excluded"]
FORM = ("n", "replicates", "goal", "weight", "budget")  # fields that a preview keeps


@page("/", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    """All campaigns that this server shows."""
    rows = []
    for one in library(request).all():
        try:
            rows.append({"key": one.key, "problem": "", **one.read("status")})
        except AicauError as error:
            rows.append({"key": one.key, "problem": str(error)})
    return {"campaigns": rows, "can_create": bool(library(request).folders)}


@page("/c/{key}/overview", "overview.html.j2", "look")
def overview(visit: Visitor) -> dict[str, Any]:
    """Where the campaign stands, how good its predictions are, and what to do next."""
    every, pending, cost = visit.look.get("every", []), visit.read("status")["pending"], visit.settings.get("cost")
    points = f"{pending} pending {'point' if pending == 1 else 'points'}"
    first = ("", visit.settings["target"])  # a well has a result of each target, and is paid for once
    rows = [row for row in visit.read("moment").rows if row.target in first] if cost else []
    spent = visit.campaign.describe([row.candidate for row in rows])[cost].astype(float) if cost else []
    return {
        "spent": sum(price * row.repeats for price, row in zip(spent, rows, strict=True)),
        "next_step": f"Measure the {points}, then drop the results." if pending else "Ask for the next batch.",
        "advice": [(f"{target}: " if len(every) > 1 else "") + one.progress.advice for target, one, _ in every],
        "progress": every[0][1].progress.rounds if every else [],
        "parts": every[0][1].rounds if every else [],
    }


@page("/c/{key}/next", "next.html.j2")
def next_batch(visit: Visitor, job: Annotated[str, Query(max_length=40)] = "") -> dict[str, Any]:
    """The last batch and its plate, or a preview of the next one."""
    settings, status, preview, chosen, problem = visit.settings, visit.read("status"), None, {}, ""
    asked = visit.library.worker.jobs.get(job)
    if asked is not None and asked.campaign == visit.key and asked.verb in ("ask", "change") and asked.over:
        problem = asked.error
        if asked.arguments.get("preview"):
            preview, chosen = asked.result, {k: v for k, v in asked.arguments.items() if k in FORM}
    if preview:
        rows, plate, number, states = preview["rows"], preview["layout"], None, ["preview"] * len(preview["rows"])
    else:
        frame, states, number = visit.read("last_batch")
        plate = visit.read("layouts").get(status["asks"])
        rows = [] if frame is None else control_rows(plate, settings["id"], frame).to_dict("records")
    points = sum(row["reason"] != "control" for row in rows)
    states = [*states[:points], *["control"] * (len(rows) - points)]
    shown = plain([row | {"id": str(row[settings["id"]]), "state": s} for row, s in zip(rows, states, strict=True)])
    names, kinds = list(rows[0] if rows else ()), {c["name"]: c["kind"] for c in settings["columns"]}
    return {
        "round": number,
        "preview": bool(preview),
        "rows": shown,
        "points": points,
        "chosen": {"n": points or 8, "replicates": 1} | chosen,
        "weights": [name for name, kind in kinds.items() if kind in ("number", "ignored")],
        "features": [name for name in names if name in kinds],
        "reasons": [name for name in names if name.startswith("reason_")],
        "plates": plates(shown, bool(plate)),
        "pending": status["pending"],
        "problem": problem,
    }


@page("/c/{key}/results", "results.html.j2")
def results(visit: Visitor) -> dict[str, Any]:
    """A form for files of results, and the measurements so far."""
    rows, settings = visit.read("measurements").iloc[::-1], visit.settings
    names = [settings["id"], *visit.campaign.targets, settings["batch"]]
    return {"columns": names, "rows": rows.head(200), "total": len(rows)}


@page("/c/{key}/results/{number}", "check.html.j2")
def check(visit: Visitor, number: str, correct: bool = False) -> dict[str, Any]:
    """What a file of results would change, row by row; nothing is stored yet."""
    upload = visit.library.upload(number, visit.key)
    found: dict[str, Any] = {"file": upload.name, "number": number, "correct": correct, "said": upload.said}
    found |= {"rows": [], "names": [], "counts": {}, "problem": "", "outcomes": {}}
    if not upload.said:
        try:
            rows, counts = visit.campaign.check(upload.path, correct)
            found |= {"rows": rows, "counts": counts, "outcomes": rows.outcome.value_counts().to_dict()}
            found["names"] = [name for name in rows if name not in ("row", "outcome", "note")]
        except AicauError as error:
            found["problem"] = str(error)
    return found


@dataclass(frozen=True)
class Part:
    """A part of the map, as in the address of a page."""

    x: Column = ""
    y: Column = ""
    x0: End = None
    x1: End = None
    y0: End = None
    y1: End = None

    @property
    def whole(self) -> bool:
        return {self.x0, self.x1, self.y0, self.y1} == {None}

    def window(self, table: Candidates) -> Window:
        """The interval of each column; both axes may be one column."""
        found: dict[str, tuple[float, float]] = {}
        for name, start, end in ((self.x, self.x0, self.x1), (self.y, self.y0, self.y1)):
            if name not in table.places():
                raise HTTPException(404, "There is no such column.")
            low, high = found.get(name, (-math.inf, math.inf))
            found[name] = (low if start is None else max(low, start), high if end is None else min(high, end))
        return found

    def words(self) -> dict[str, Any]:
        """As parameters of an address."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


AskedPart = Annotated[Part, Depends()]


@page("/c/{key}/map", "map.html.j2", "table")
def map_(visit: Visitor, part: AskedPart, colour: Column = "") -> dict[str, Any]:
    """Candidates in two dimensions, coloured by their predictions; all of them or a window."""
    table, view = visit.entry.candidates()
    if table is None:
        return {"map": None, "table": _waiting(view)}
    places, colours = table.places(), table.colours()
    part = replace(part, x=part.x or places[0], y=part.y or places[min(1, len(places) - 1)])
    colour = colour or next(iter(colours), "")
    scene = table.scene(part.x, part.y, colour, part.window(table))
    mask, drawn, moment = scene.pop("mask"), dict(scene["map"]), visit.read("moment")
    marked = {"measured": {row.candidate for row in moment.rows}, "pending": moment.pending}
    marked["listed"] = [row["number"] for row in scene["rows"]]
    drawn |= {name: table.marks(part.x, part.y, drawn["ends"], some, mask) for name, some in marked.items()}
    shown = {"places": places, "colours": colours, "colour": colour, "zoomed": not part.whole, "part": part.words()}
    return scene | shown | {"map": drawn, "names": table.said}


@page("/c/{key}/candidates", "candidates.html.j2", "table")
def all_candidates(
    visit: Visitor,
    part: AskedPart,
    q: Column = "",
    sort: Column = "",
    down: bool = False,
    show: State = "all",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> dict[str, Any]:
    """Candidates with predictions: searched, sorted, page by page; all of them or those of a part of the map."""
    table, view = visit.entry.candidates()
    if table is None:
        return {"rows": None, "table": _waiting(view)}
    moment = visit.read("moment")
    states = dict.fromkeys((row.candidate for row in moment.rows), "measured")
    states |= dict.fromkeys(moment.barred, "excluded") | dict.fromkeys(moment.pending, "pending")
    only = None if show == "all" else [at for at, state in states.items() if state == show]
    mask = table.found(q, only, {} if part.whole else part.window(table))
    rows, total = table.rows(mask, sort, down, page)
    own = {} if part.whole else part.words()
    return {
        "rows": [row | {"state": states.get(row["number"], "")} for row in rows],
        "total": total,
        "pages": -(-total // PAGE),
        "part": own,
        "said": table.said,
        "features": table.pool,
        "id": table.id,
        "states": get_args(State),
        "search": {"q": q, "sort": sort, "down": down, "show": show, "page": page} | part.words(),
    }


def _waiting(view: Any) -> dict[str, Any]:
    return {"step": view.job.step if view.job else "", "error": view.failed[1]}


@page("/c/{key}/noise", "noise.html.j2", "look")
def noise(visit: Visitor) -> dict[str, Any]:
    """How far replicates scatter, the effects of plates, and possible mistakes."""
    contents = next((one for _, one, _ in visit.look.get("every", [])), None)
    return {name: getattr(contents, name, None) for name in ("noise", "labels")}


@page("/c/{key}/history", "history.html.j2")
def history(visit: Visitor) -> dict[str, Any]:
    """All that happened, newest first: who, when, what; and which results can be taken back."""
    rows, current = plain(visit.read("history").iloc[::-1]), set(visit.read("measurements")["tell"])
    return {"rows": [row | {"standing": row["what"] == "tell" and row["number"] in current} for row in rows]}


@router.get("/jobs/{number}.json", summary="The state of a job.")
def job(request: Request, number: str) -> JSONResponse:
    found = library(request).worker.jobs.get(number)
    if found is None:
        raise HTTPException(404, "There is no such work; the server may have been started anew.")
    return told(request, found.shown())


@router.get("/c/{key}/state.json", summary="The work under way, for pages that wait; nothing is computed.")
def state(visit: Visitor) -> JSONResponse:
    visit.entry.candidates()
    return told(visit.request, visit.entry.work())


@page("/new/{number}", "create.html.j2")
def understood(request: Request, number: str) -> dict[str, Any]:
    """The columns of a table of candidates as they were understood, to be corrected before the campaign is made."""
    upload = library(request).upload(number)
    form = {"name": Path(upload.name).stem.replace(" ", "-")[:60], "threshold": None} | upload.form
    id, ignore = form.get("id", ""), form.get("ignore", [])
    found: dict[str, Any] = {"file": upload.name, "number": number, "problem": upload.problem, "columns": [], "rows": 0}
    found |= {"names": [], "sample": [], "notes": [], "id": id, "ignore": ignore, "form": form}
    try:
        sheet = tables.read(upload.path)
        names = sheet.table.column_names
        likely = [n for n in names if n.strip().casefold() in ("id", "compound", "sample", "name")]
        found["id"] = id = id if id in names else (likely or names)[0]
        found |= {"rows": sheet.rows, "names": names, "sample": sheet.table.slice(0, 5).to_pylist()}
        found["columns"] = columns.describe(sheet, id, [name for name in ignore if name in names])
        found["notes"] = [*sheet.notes, *columns.notes(found["columns"], sheet.rows)]
    except AicauError as error:
        found["problem"] = str(error)
    return found


# Files


@router.get("/c/{key}/batch.{kind}", summary="The pending points as a file for the laboratory.")
def batch_file(visit: Visitor, kind: Literal["csv", "xlsx"]) -> Response:
    campaign = visit.campaign
    plate = visit.read("layouts").get(visit.read("status")["asks"])
    frame = control_rows(plate, campaign.settings["id"], campaign.pending())
    for name in reversed(campaign.blank_columns()):  # to be filled in
        frame.insert(list(frame).index("replicate") + 1, name, "")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return _file(f"{visit.key}-batch.{kind}", lambda path: tables.write([table], path))


@router.get("/c/{key}/predictions.{kind}", summary="Every candidate with its predictions.")
def predictions_file(visit: Visitor, kind: Literal["csv", "xlsx"]) -> Response:
    table, _ = visit.entry.candidates()
    if table is None or not table.said:
        raise HTTPException(404, "There are no predictions yet; update the model first.")
    names = {f"{POOL}{table.id}": table.id} | {f"{SAID}{name}": name for name in table.said}
    own = table.table.select(list(names)).rename_columns(list(names.values()))
    return _file(f"{visit.key}-predictions.{kind}", lambda path: tables.write([own], path))


@router.get("/c/{key}/everything.zip", summary="The whole campaign as plain files, as `aicau export` writes them.")
def everything(visit: Visitor) -> Response:
    def write(path: Path) -> None:
        folder = path.with_suffix("")
        visit.campaign.export(folder)
        shutil.make_archive(str(folder), "zip", path.parent, visit.key)

    return _file(f"{visit.key}.zip", write)


def _file(name: str, write: Callable[[Path], object]) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        kept = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(path.read_bytes(), media_type=KINDS[path.suffix[1:]], headers=kept)
