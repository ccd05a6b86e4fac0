"""What a campaign hands out, made from the rows of its store: batches, predictions, counts."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from aicau.campaign import plates
from aicau.campaign.progress import COLUMNS, look
from aicau.campaign.setup import check_name, ensemble_of, targets_of, task_of
from aicau.core.errors import InputError, shown
from aicau.store import ABANDONED, COMPLETED, FAILED, PENDING, Session, changes, numbers_of, schema
from aicau.tables import candidates

STATES = [PENDING, COMPLETED, FAILED, ABANDONED]  # of a proposed point


def frame(session: Session, rows: Sequence[Any]) -> pd.DataFrame:
    """Proposed points: id, columns of the pool, replicate, reason and its numbers."""
    settings, found = session.settings, candidates.described(session, [row.candidate for row in rows])
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


def answered(session: Session, request: str | None, n: int, budget: float | None) -> pd.DataFrame | None:
    """The batch that this request was answered with; None where it is new."""
    if request is None:
        return None
    check_name("a request", request)
    row = session.ask_of(request)
    if row is None:
        return None
    if row.size != n and budget is None:
        raise InputError(f"request {shown(request)} was answered with {row.size} points; now {shown(n)} are asked for")
    return whole(session, row.id)


def whole(session: Session, ask: int) -> pd.DataFrame:
    """One batch, with the controls of its plate below the points."""
    points = frame(session, session.proposals(ask))
    return plates.control_rows(plates.layouts(session).get(ask), session.settings["id"], points)


def measured(session: Session) -> dict[int, tuple[Any, int]]:
    """Mean (or most frequent label) and number of the current measurements of each candidate."""
    found = defaultdict[int, Counter[Any]](Counter)
    for row in session.measurements():
        if row.status == "ok":
            found[row.candidate][row.value if row.label is None else row.label] += row.repeats
    if task_of(session.settings) == "classification":
        return {c: (min(some, key=lambda name: (-some[name], name)), some.total()) for c, some in found.items()}
    sums = {c: math.fsum(value * n for value, n in some.items()) for c, some in found.items()}
    return {c: (sums[c] / some.total(), some.total()) for c, some in found.items()}


def status(session: Session) -> dict[str, Any]:
    """Counts and settings, as plain JSON."""
    settings, asks, rows = session.settings, session.table(schema.asks), session.measurements(current=False)
    current = [row for row in rows if row.superseded_by is None]
    sizes = [size for _, _, size in session.model_rounds() if size]
    states = Counter(row.status for row in session.proposals())
    closed = changes.barred(session, ()).values()
    return {
        "candidates": settings["candidates"],
        "measurements": sum(row.status == "ok" for row in current),
        "measured": len({row.candidate for row in current if row.status == "ok"}),
        "failed_wells": sum(row.status == FAILED for row in current),
        "superseded": len(rows) - len(current),
        **{state: states[state] for state in STATES},
        "excluded": sum(reason.startswith("excluded") for reason in closed),
        "batches": len({row.batch for row in current} - {None}),
        "changed": session.table(schema.events)[-1].time,
        "last_size": asks[-1].size if asks else 0,
        "rounds": asks[-1].round if asks else 0,
        "asks": len(asks),
        "tells": sum(row.correct != changes.CHANGED for row in session.table(schema.tells)),
        "models": len(sizes),
        "model_bytes": sum(sizes),
        "task": task_of(settings),
        "classes": sorted({row.label for row in current} - {None}),
        "strategy": settings["strategy"],
        "ensemble": ensemble_of(settings),
        "goal": settings.get("goal", "map"),
        "weight": settings.get("weight"),
        "seed": settings["seed"],
        "id": settings["id"],
        "target": ", ".join(targets_of(settings)),
        "batch": settings["batch"],
        **_where(session),
        "features": [c["name"] for c in settings["columns"] if c["kind"] != "ignored"],
        "warnings": warnings(session),
    }


def _where(session: Session) -> dict[str, Any]:
    """How good predictions are: of the target, or of each of several."""
    if "targets" not in session.settings:
        return {"progress": _now(session)}
    found = {}
    for target, weight in session.settings["targets"]:
        own = session.of(target)
        told = sum(row.status == "ok" for row in own.measurements())
        found[target] = {"weight": weight, "measurements": told, "progress": _now(own)}
    return {"progress": None, "targets": found}


def _now(session: Session) -> dict[str, Any] | None:
    """The error over all candidates as the last fitted model expects it, and what to do; None before the first."""
    found = look(session)
    if found.rounds.empty:
        return None
    now = found.rounds[COLUMNS].iloc[-1]
    return {k: int(now[k]) if k in COLUMNS[:2] else float(now[k]) for k in COLUMNS} | {"advice": found.advice}


def warnings(session: Session) -> list[str]:
    """Columns of the pool that read oddly, and values far from what is known that nobody corrected."""
    words = candidates.notes(session.settings["columns"], session.settings["candidates"])
    far = changes.suspects(session)
    there = [row for row in session.measurements() if row.id in far] if far else []
    names = candidates.described(session, [row.candidate for row in there]).iloc[:, 0]
    for row, name in zip(there, names, strict=True):
        expected, tell = far[row.id]
        where = "" if row.batch is None else f" on {row.batch!r}"
        what = f"{row.target or session.settings['target']} {row.value:.6g} of {name!r}{where} (tell {tell})"
        words.append(
            f"{what} is far from what was known (about {expected:.3g}); is it a slip? replace it with 'aicau tell"
            " --correct'; is it right? say so with 'aicau confirm'"
        )
    return words
