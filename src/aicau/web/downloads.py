"""What pages hand out as files."""

import shutil
import tempfile
from pathlib import Path
from typing import Literal

import pyarrow as pa
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from aicau import tables
from aicau.campaign.plates import control_rows
from aicau.web.candidates import POOL, SAID
from aicau.web.render import library, opened

router = APIRouter()
KINDS = {"csv": "text/csv", "zip": "application/zip"}
KINDS["xlsx"] = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@router.get("/c/{key}/batch.{kind}", summary="The pending points as a file for the laboratory.")
def batch_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    campaign = opened(request, key)
    plate = campaign.layouts().get(library(request).read(key, "status")["asks"])
    frame = control_rows(plate, campaign.settings["id"], campaign.pending())
    for name in reversed(campaign.blank_columns()):  # to be filled in
        frame.insert(list(frame).index("replicate") + 1, name, "")
    return _file(pa.Table.from_pandas(frame, preserve_index=False), f"{key}-batch.{kind}")


@router.get("/c/{key}/predictions.{kind}", summary="Every candidate with what is predicted of it.")
def predictions_file(request: Request, key: str, kind: Literal["csv", "xlsx"]) -> Response:
    opened(request, key)
    table, _ = library(request).candidates(key)
    if table is None or not table.said:
        raise HTTPException(404, "There are no predictions yet; update the model first.")
    names = {f"{POOL}{table.id}": table.id} | {f"{SAID}{name}": name for name in table.said}
    return _file(table.table.select(list(names)).rename_columns(list(names.values())), f"{key}-predictions.{kind}")


def _file(table: pa.Table, name: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        tables.write([table], path := Path(folder) / name)
        return _download(path)


def _download(path: Path) -> Response:
    """Read at once: its folder does not stay."""
    kept = {"content-disposition": f'attachment; filename="{path.name}"'}
    return Response(path.read_bytes(), media_type=KINDS[path.suffix[1:]], headers=kept)


@router.get("/c/{key}/everything.zip", summary="The whole campaign as plain files, as `aicau export` writes them.")
def everything(request: Request, key: str) -> Response:
    with tempfile.TemporaryDirectory() as folder:
        opened(request, key).export(Path(folder) / key)
        return _download(Path(shutil.make_archive(str(Path(folder) / key), "zip", folder, key)))
