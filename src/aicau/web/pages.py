"""What pages show, each also as JSON, and what they hand out as files.

Nothing here writes, fits or waits: the background process does what is long.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response

from aicau import tables
from aicau.campaign.plates import control_rows
from aicau.core.errors import AicauError
from aicau.tables import candidates as columns
from aicau.web.candidates import POOL, SAID
from aicau.web.plain import plain, plates
from aicau.web.render import knows, library, page, router

SHOWN = ("id", "target", "batch", "task", "strategy", "seed", "goal", "weight", "cost", "scale")  # settings
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
KINDS = {"csv": "text/csv", "zip": "application/zip", "xlsx": XLSX}  # of files
FORM = ("n", "replicates", "goal", "weight", "budget")  # that a preview keeps


def basis(request: Request, key: str) -> dict[str, Any]:
    """What every page of a campaign shows: its counts, the work under way, and whether its model knows everything."""
    lib, settings = library(request), library(request).at(key).settings
    found = lib.look(key).result or {}
    job = lib.worker.of(key)
    ready = {"ready": bool(found.get("every")), "missing": found.get("missing", "")}
    return {
        "key": key,
        "status": lib.read(key, "status"),
        "settings": {name: settings.get(name) for name in SHOWN},
        "job": None if job is None else job.shown(),
        "model": ready | lib.work(key),
        "look": found,
    }


@page("/", "campaigns.html.j2")
def campaigns(request: Request) -> dict[str, Any]:
    """All campaigns that this server shows."""
    rows = []
    for key in library(request).all():
        try:
            rows.append({"key": key, "problem": "", **library(request).read(key, "status")})
        except AicauError as error:
            rows.append({"key": key, "problem": str(error)})
    return {"campaigns": rows, "can_create": bool(library(request).folders)}


@page("/c/{key}/overview", "overview.html.j2", "look")
def overview(request: Request, key: str) -> dict[str, Any]:
    """Where the campaign stands, how good its predictions are, and what to do next."""
    data = basis(request, key)
    every, pending = data["look"].get("every", []), data["status"]["pending"]
    points = f"{pending} pending {'point' if pending == 1 else 'points'}"
    rows, cost = library(request).read(key, "moment").rows, data["settings"]["cost"]
    rows = [row for row in rows if row.target in ("", data["settings"]["target"])]  # a well has a result of each target
    spent = library(request).at(key).describe([row.candidate for row in rows])[cost].astype(float) if cost else []
    advice = [(f"{target}: " if len(every) > 1 else "") + one.progress.advice for target, one, _ in every]
    return data | {
        "spent": sum(price * row.repeats for price, row in zip(spent, rows, strict=False)),
        "next_step": f"Measure the {points}, then drop the results." if pending else "Ask for the next batch.",
        "advice": advice,
        "progress": every[0][1].progress.rounds if every else [],
        "parts": every[0][1].rounds if every else [],
    }


@page("/c/{key}/next", "next.html.j2")
def next_batch(request: Request, key: str, job: Annotated[str, Query(max_length=40)] = "") -> dict[str, Any]:
    """The last batch and its plate, or a preview of the next one."""
    data, preview, chosen, problem = basis(request, key), None, {}, ""
    asked = library(request).worker.jobs.get(job)
    if asked is not None and asked.campaign == key and asked.verb in ("ask", "change") and asked.over:
        problem = asked.error
        if asked.arguments.get("preview"):
            preview, chosen = asked.result, {k: v for k, v in asked.arguments.items() if k in FORM}
    settings = library(request).at(key).settings
    if preview:
        rows, plate, number = preview["rows"], preview["layout"], None
        states = ["preview"] * len(rows)
    else:
        frame, states, number = library(request).read(key, "last_batch")
        plate = library(request).read(key, "layouts").get(data["status"]["asks"])
        rows = [] if frame is None else control_rows(plate, settings["id"], frame).to_dict("records")
    points = sum(row["reason"] != "control" for row in rows)
    states = [*states[:points], *["control"] * (len(rows) - points)]
    shown = plain([row | {"id": str(row[settings["id"]]), "state": s} for row, s in zip(rows, states, strict=True)])
    names, kinds = list(rows[0] if rows else ()), {c["name"]: c["kind"] for c in settings["columns"]}
    return data | {
        "round": number,
        "preview": bool(preview),
        "rows": shown,
        "points": points,
        "chosen": {"n": points or 8, "replicates": 1} | chosen,
        "weights": [name for name, kind in kinds.items() if kind in ("number", "ignored")],
        "features": [name for name in names if name in kinds],
        "reasons": [name for name in names if name.startswith("reason_")],
        "plates": plates(shown, bool(plate)),
        "pending": data["status"]["pending"],
        "problem": problem,
    }


@page("/c/{key}/results", "results.html.j2")
def results(request: Request, key: str) -> dict[str, Any]:
    """Where results are dropped, and what was told so far."""
    data = basis(request, key)
    told = library(request).read(key, "measurements").iloc[::-1]
    names = [data["settings"]["id"], *library(request).at(key).targets, data["settings"]["batch"]]
    return data | {"columns": names, "rows": told.head(200), "total": len(told)}


@page("/c/{key}/results/{number}", "check.html.j2")
def check(request: Request, key: str, number: str, correct: bool = False) -> dict[str, Any]:
    """What a dropped file would change, row by row; nothing is stored yet."""
    data, upload = basis(request, key), library(request).upload(number, key)
    found: dict[str, Any] = {"file": upload.name, "number": number, "correct": correct, "said": upload.said}
    found |= {"rows": [], "names": [], "counts": {}, "problem": "", "outcomes": {}}
    if not upload.said:
        try:
            rows, counts = library(request).at(key).check(upload.path, correct)
            found |= {"rows": rows, "counts": counts, "outcomes": rows.outcome.value_counts().to_dict()}
            found["names"] = [name for name in rows if name not in ("row", "outcome", "note")]
        except AicauError as error:
            found["problem"] = str(error)
    return data | found


@page("/c/{key}/noise", "noise.html.j2", "look")
def noise(request: Request, key: str) -> dict[str, Any]:
    """How far replicates scatter, what plates share, and what may not be meant so."""
    data = basis(request, key)
    contents = data["look"]["every"][0][1] if data["model"]["ready"] else None
    return data | {name: getattr(contents, name, None) for name in ("noise", "labels")}


@page("/c/{key}/history", "history.html.j2")
def history(request: Request, key: str) -> dict[str, Any]:
    """All that happened, newest first: who, when, what; and what can be taken back."""
    data = basis(request, key)
    rows = plain(library(request).read(key, "history").iloc[::-1])
    current = set(library(request).read(key, "measurements")["tell"])
    for row in rows:
        row["standing"] = row["what"] == "tell" and row["number"] in current
    return data | {"rows": rows}


@router.get("/jobs/{number}.json", summary="How far a piece of long work is.")
def job(request: Request, number: str) -> JSONResponse:
    found = library(request).worker.jobs.get(number)
    if found is None:
        raise HTTPException(404, "There is no such work; the server may have been started anew.")
    said = found.shown()
    knows(request)
    return JSONResponse(said)


@router.get("/c/{key}/state.json", summary="What a page that waits needs to know: nothing is computed for it.")
def state(request: Request, key: str) -> JSONResponse:
    library(request).candidates(key)
    said = library(request).work(key)
    knows(request)
    return JSONResponse({name: said[name] for name in ("busy", "step")})


@page("/new/{number}", "create.html.j2")
def understood(request: Request, number: str) -> dict[str, Any]:
    """What was understood of a table of candidates, to be corrected before a campaign is made of it."""
    upload = library(request).upload(number)
    form = {"name": Path(upload.name).stem.replace(" ", "-")[:60], "threshold": None} | upload.form
    id, ignore = form.get("id", ""), form.get("ignore", [])
    found: dict[str, Any] = {"file": upload.name, "number": number, "problem": upload.problem, "columns": []}
    found |= {"rows": 0, "names": [], "sample": [], "notes": [], "id": id, "ignore": ignore, "form": form}
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
def batch_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    campaign = library(request).at(key)
    plate = campaign.layouts().get(library(request).read(key, "status")["asks"])
    frame = control_rows(plate, campaign.settings["id"], campaign.pending())
    for name in reversed(campaign.blank_columns()):  # to be filled in
        frame.insert(list(frame).index("replicate") + 1, name, "")
    return _file(pa.Table.from_pandas(frame, preserve_index=False), f"{key}-batch.{kind}")


@router.get("/c/{key}/predictions.{kind}", summary="Every candidate with what is predicted of it.")
def predictions_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    table, _ = library(request).candidates(key)
    if table is None or not table.said:
        raise HTTPException(404, "There are no predictions yet; update the model first.")
    names = {f"{POOL}{table.id}": table.id} | {f"{SAID}{name}": name for name in table.said}
    return _file(table.table.select(list(names)).rename_columns(list(names.values())), f"{key}-predictions.{kind}")


def _file(table: pa.Table, name: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        tables.write([table], path)
        return _download(path)


def _download(path: Path) -> Response:
    """Read at once: its folder does not stay."""
    kept = {"content-disposition": f'attachment; filename="{path.name}"'}
    return Response(path.read_bytes(), media_type=KINDS[path.suffix[1:]], headers=kept)


@router.get("/c/{key}/everything.zip", summary="The whole campaign as plain files, as `aicau export` writes them.")
def everything(request: Request, key: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        library(request).at(key).export(Path(folder) / key)
        return _download(Path(shutil.make_archive(str(Path(folder) / key), "zip", folder, key)))
