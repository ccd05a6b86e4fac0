"""Pages of all candidates: the map, and the table."""

from typing import Annotated, Any, Literal

from fastapi import HTTPException, Query, Request

from aicau.web.candidates import PAGE, STATES
from aicau.web.pages import basis, library, opened, page, router

__all__ = ["router"]
Column = Annotated[str, Query(max_length=200)]


@page("/c/{key}/map", "map.html.j2")
def map_(
    request: Request,
    key: str,
    x: Column = "",
    y: Column = "",
    colour: Column = "",
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
    q: Column = "",
    sort: Column = "",
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
    pages = -(-total // PAGE)
    names = {"said": table.said, "features": table.pool, "id": table.id, "states": STATES}
    search = {"q": q, "sort": sort, "down": down, "show": show, "page": page}
    return data | names | {"rows": rows, "total": total, "pages": pages, "search": search}


def _waiting(view: Any) -> dict[str, Any]:
    return {"step": view.job.step if view.job else "", "error": view.failed[1]}
