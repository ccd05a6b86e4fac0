"""What a campaign hands out, made from the rows of its store: batches, predictions, counts."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau.campaign import plates
from aicau.campaign.progress import COLUMNS, look
from aicau.campaign.setup import check_name, ensemble_of, targets_of, task_of
from aicau.core.errors import InputError, shown
from aicau.store import ABANDONED, COMPLETED, FAILED, PENDING, Session, changes, numbers_of, schema
from aicau.tables import candidates

STATES = [PENDING, COMPLETED, FAILED, ABANDONED]  # of a proposed point


def batch(session: Session, settings: dict[str, Any], ask: int | None, status: str | None = None) -> pd.DataFrame:
    """Proposed points, of one ask or in one state."""
    if ask is not None and not 0 < ask <= session.number(schema.asks.c.id):
        raise InputError(f"there is no batch {ask}; 'aicau batches' lists them with their numbers")
    return frame(session, settings, session.proposals(ask, status))


def frame(session: Session, settings: dict[str, Any], rows: Sequence[Any]) -> pd.DataFrame:
    """Proposed points: id, columns of the pool, replicate, reason and its numbers."""
    found = described(session, settings, [row.candidate for row in rows])
    found["replicate"] = [row.replicate for row in rows]
    found["reason"] = [row.why for row in rows]
    numbers = [numbers_of(row, session.target) for row in rows]
    if settings.get("layout") or any("well" in one for one in numbers):
        found.insert(1, "well", [one.get("well") for one in numbers])
    for name in candidates.REASONS:
        found[f"reason_{name}"] = pd.Series([one.get(name) for one in numbers], dtype="float64")
    for target, name in product(dict(settings.get("targets", ())), candidates.REASONS[-3:]):
        own = [one.get("of", {}).get(target, {}).get(name) for one in numbers]
        found[f"reason_{target}_{name}"] = pd.Series(own, dtype="float64")
    return found


def answered(
    session: Session, settings: dict[str, Any], request: str | None, n: int, budget: float | None = None
) -> pd.DataFrame | None:
    """The batch that this request was answered with; None where it is new."""
    if request is None:
        return None
    check_name("a request", request)
    row = session.ask_of(request)
    if row is None:
        return None
    if row.size != n and budget is None:
        raise InputError(f"request {shown(request)} was answered with {row.size} points; now {shown(n)} are asked for")
    return whole(session, settings, row.id)


def whole(session: Session, settings: dict[str, Any], ask: int) -> pd.DataFrame:
    """One batch, with the controls of its plate below the points."""
    return plates.control_rows(plates.layouts(session).get(ask), settings["id"], batch(session, settings, ask))


def described(session: Session, settings: dict[str, Any], index: Sequence[int]) -> pd.DataFrame:
    """Ids and columns of some candidates, in that order."""
    ends = np.cumsum(session.sizes())
    wanted = np.asarray(index, dtype=np.int64)
    chunk = np.searchsorted(ends, wanted, side="right")
    parts: list[pa.Table] = []
    places: list[Any] = []
    for number, ids, features in session.features(chunk if len(wanted) else [0]):
        inside = np.flatnonzero(chunk == number)
        table = candidates.unpack(features).add_column(0, settings["id"], candidates.ids_of(ids, settings))
        parts.append(table.take(wanted[inside] - (ends[number - 1] if number else 0)))
        places.append(inside)
    found = pa.concat_tables(parts).to_pandas(integer_object_nulls=True)
    return found.iloc[np.argsort(np.concatenate(places))].reset_index(drop=True)


def measured(session: Session, settings: dict[str, Any]) -> dict[int, tuple[Any, int]]:
    """Mean (or most frequent label) and number of the current measurements of each candidate."""
    found = defaultdict[int, Counter[Any]](Counter)
    for row in session.measurements():
        if row.status == "ok":
            found[row.candidate][row.value if row.label is None else row.label] += row.repeats
    if task_of(settings) == "classification":
        return {c: (min(some, key=lambda name: (-some[name], name)), some.total()) for c, some in found.items()}
    sums = {c: math.fsum(value * n for value, n in some.items()) for c, some in found.items()}
    return {c: (sums[c] / some.total(), some.total()) for c, some in found.items()}


def status(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """Counts and settings, as plain JSON."""
    last = session.last_ask()
    rows = session.measurements(current=False)
    current = [row for row in rows if row.superseded_by is None]
    sizes = [size for _, _, size in session.model_rounds() if size]
    states = {state: session.count(schema.proposals, status=state) for state in STATES}
    closed = changes.barred(session, ()).values()
    return {
        "candidates": settings["candidates"],
        "measurements": sum(row.status == "ok" for row in current),
        "measured": len({row.candidate for row in current if row.status == "ok"}),
        "failed_wells": sum(row.status == FAILED for row in current),
        "superseded": len(rows) - len(current),
        **states,
        "excluded": sum(reason.startswith("excluded") for reason in closed),
        "batches": len({row.batch for row in current} - {None}),
        "changed": session.last_time(),
        "last_size": 0 if last is None else last.size,
        "rounds": 0 if last is None else last.round,
        "asks": 0 if last is None else last.id,
        "tells": sum(row.correct != changes.CHANGED for row in session.table(schema.tells)),
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
        "target": ", ".join(targets_of(settings)),
        "batch": settings["batch"],
        **_where(session, settings),
        "features": [c["name"] for c in settings["columns"] if c["kind"] != "ignored"],
        "warnings": warnings(session, settings),
    }


def _where(session: Session, settings: dict[str, Any]) -> dict[str, Any]:
    """How good predictions are: of the target, or of each of several."""
    if "targets" not in settings:
        return {"progress": _now(session, settings)}
    found = {}
    for target, weight in settings["targets"]:
        own, rows = replace(session, target=target), [r for r in session.measurements() if r.target == target]
        counts = {"weight": weight, "measurements": sum(row.status == "ok" for row in rows)}
        found[target] = counts | {"progress": _now(own, settings | {"target": target})}
    return {"progress": None, "targets": found}


def _now(session: Session, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The error over all candidates as the last fitted model expects it, and what to do; None before the first."""
    found = look(session, settings)
    if found.rounds.empty:
        return None
    now = found.rounds[COLUMNS].iloc[-1]
    return {k: int(now[k]) if k in COLUMNS[:2] else float(now[k]) for k in COLUMNS} | {"advice": found.advice}


def warnings(session: Session, settings: dict[str, Any]) -> list[str]:
    """Columns of the pool that read oddly, and values far from what is known that nobody corrected."""
    words = candidates.notes(settings["columns"], settings["candidates"])
    far = changes.suspects(session)
    if not far:
        return words
    there = [row for row in session.measurements() if row.id in far]
    names = described(session, settings, [row.candidate for row in there])[settings["id"]]
    for row, name in zip(there, names, strict=True):
        expected, tell = far[row.id]
        where = "" if row.batch is None else f" on {row.batch!r}"
        what = f"{row.target or settings['target']} {row.value:.6g} of {name!r}{where} (tell {tell})"
        words.append(
            f"{what} is far from what was known (about {expected:.3g}); is it a slip? replace it with 'aicau tell"
            " --correct'; is it right? say so with 'aicau confirm'"
        )
    return words
