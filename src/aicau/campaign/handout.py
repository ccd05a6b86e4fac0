"""What a campaign hands out, made from the rows of its store: batches, predictions, counts."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau.campaign.setup import check_name, ensemble_of, task_of
from aicau.core.errors import InputError, shown
from aicau.store import ABANDONED, COMPLETED, FAILED, PENDING, Session, schema
from aicau.tables import candidates

if TYPE_CHECKING:
    from aicau.campaign.model import Model


def batch(session: Session, settings: dict[str, Any], ask: int | None, status: str | None = None) -> pd.DataFrame:
    """Proposed points, of one ask or in one state: id, columns of the pool, replicate, reason and its numbers."""
    rows = session.proposals(ask, status)
    frame = described(session, settings["id"], [row.candidate for row in rows])
    frame["replicate"] = [row.replicate for row in rows]
    frame["reason"] = [row.why for row in rows]
    numbers = [json.loads(row.numbers) for row in rows]
    for name in candidates.REASONS:
        frame[f"reason_{name}"] = pd.Series([one.get(name) for one in numbers], dtype="float64")
    return frame


def answered(session: Session, settings: dict[str, Any], request: str | None, n: int) -> pd.DataFrame | None:
    """The batch that this request was answered with; None where it is new."""
    if request is None:
        return None
    check_name("a request", request)
    row = session.ask_of(request)
    if row is None:
        return None
    if row.size != n:
        raise InputError(f"request {shown(request)} was answered with {row.size} points; now {shown(n)} are asked for")
    return batch(session, settings, row.id)


def described(session: Session, id: str, index: Sequence[int]) -> pd.DataFrame:
    """Ids and columns of some candidates, in that order."""
    wanted = np.asarray(index, dtype=np.int64)
    parts: list[pa.Table] = []
    places: list[Any] = []
    for number, ids, features in session.features(wanted // candidates.CHUNK if index else [0]):
        inside = np.flatnonzero(wanted // candidates.CHUNK == number)
        table = candidates.unpack(features).add_column(0, id, candidates.unpack(ids).column(0))
        parts.append(table.take(wanted[inside] - number * candidates.CHUNK))
        places.append(inside)
    frame = pa.concat_tables(parts).to_pandas(integer_object_nulls=True)
    return frame.iloc[np.argsort(np.concatenate(places))].reset_index(drop=True)


def predictions(model: "Model", chunks: Sequence[bytes], id: str) -> Iterator[pa.Table]:
    """What is predicted of every candidate, as many at a time as a chunk of the store holds."""
    start = 0
    for chunk in chunks:
        ids = candidates.unpack(chunk).column(0)
        columns = model.predict(np.arange(start, start + len(ids))).columns()
        yield pa.table({id: ids, **{f"aicau_{k}" if k == id else k: pa.array(v) for k, v in columns.items()}})
        start += len(ids)


def status(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Counts and settings, as plain JSON."""
    last = session.last_ask()
    rows = session.measurements(current=False)
    current = [row for row in rows if row.superseded_by is None]
    sizes = [size for _, _, size in session.model_rounds() if size]
    states = {state: session.count(schema.proposals, status=state) for state in (PENDING, COMPLETED, FAILED)}
    return {
        "candidates": settings["candidates"],
        "measurements": sum(row.status == "ok" for row in current),
        "measured": len({row.candidate for row in current if row.status == "ok"}),
        "failed_wells": sum(row.status == FAILED for row in current),
        "superseded": len(rows) - len(current),
        **states,
        "abandoned": session.count(schema.proposals, status=ABANDONED),
        "batches": len({row.batch for row in current} - {None}),
        "rounds": 0 if last is None else last.round,
        "asks": 0 if last is None else last.id,
        "tells": session.number(schema.tells.c.id),
        "models": len(sizes),
        "model_bytes": sum(sizes),
        "task": task_of(settings),
        "classes": session.labels(),
        "strategy": settings["strategy"],
        "ensemble": ensemble_of(settings),
        "goal": settings.get("goal", "map"),
        "weight": settings.get("weight"),
        "seed": settings["seed"],
        "id": settings["id"],
        "target": settings["target"],
        "batch": settings["batch"],
        "features": [c["name"] for c in settings["columns"] if c["kind"] != "ignored"],
    }


def last(session: Session, settings: dict[str, Any]) -> tuple[pd.DataFrame | None, list[str], int | None]:
    """The last batch, the state of each of its points, and its round."""
    row = session.last_ask()
    if row is None:
        return None, [], None
    return batch(session, settings, row.id), [one.status for one in session.proposals(row.id)], row.round
