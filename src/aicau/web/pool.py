"""Pages of all candidates: the map, and the table."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, get_args

from fastapi import Depends, HTTPException, Query, Request

from aicau.web.candidates import PAGE, Candidates, Window
from aicau.web.pages import basis
from aicau.web.render import library, page, router

__all__ = ["router"]
Column = Annotated[str, Query(max_length=200)]
End = float | None
State = Literal["all", "measured", "pending", "excluded"]


@dataclass(frozen=True)
class Part:
    """A part of the map, as a page's address names it."""

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
        """From where to where, by column; both axes may be the same one."""
        found: dict[str, tuple[float, float]] = {}
        for name, start, end in ((self.x, self.x0, self.x1), (self.y, self.y0, self.y1)):
            if name not in table.places():
                raise HTTPException(404, "There is no such column.")
            low, high = found.get(name, (-math.inf, math.inf))
            found[name] = (low if start is None else max(low, start), high if end is None else min(high, end))
        return found

    def words(self) -> dict[str, Any]:
        """As an address has it."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


AskedPart = Annotated[Part, Depends()]


@page("/c/{key}/map", "map.html.j2", "table")
def map_(request: Request, key: str, part: AskedPart, colour: Column = "") -> dict[str, Any]:
    """Candidates in two dimensions, coloured by what is predicted of them; a window shows a part of them."""
    data = basis(request, key)
    table, view = library(request).candidates(key)
    if table is None:
        return data | {"map": None, "table": _waiting(view)}
    places, colours = table.places(), table.colours()
    part = replace(part, x=part.x or places[0], y=part.y or places[min(1, len(places) - 1)])
    colour = colour or next(iter(colours), "")
    scene = table.scene(part.x, part.y, colour, part.window(table))
    mask, drawn = scene.pop("mask"), dict(scene["map"])
    moment = library(request).read(key, "moment")
    marked = {"measured": {row.candidate for row in moment.rows}, "pending": moment.pending}
    marked["listed"] = [row["number"] for row in scene["rows"]]
    drawn |= {name: table.marks(part.x, part.y, drawn["ends"], some, mask) for name, some in marked.items()}
    options = {"places": places, "colours": colours, "colour": colour, "zoomed": not part.whole, "part": part.words()}
    return data | scene | {"map": drawn, "names": table.said, **options}


@page("/c/{key}/candidates", "candidates.html.j2", "table")
def all_candidates(
    request: Request,
    key: str,
    part: AskedPart,
    q: Column = "",
    sort: Column = "",
    down: bool = False,
    show: State = "all",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> dict[str, Any]:
    """Candidates with predictions: found, sorted, page by page; all of them or those of a part of the map."""
    data = basis(request, key)
    table, view = library(request).candidates(key)
    if table is None:
        return data | {"rows": None, "table": _waiting(view)}
    moment = library(request).read(key, "moment")
    states = dict.fromkeys((row.candidate for row in moment.rows), "measured")
    states |= dict.fromkeys(moment.barred, "excluded") | dict.fromkeys(moment.pending, "pending")
    only = None if show == "all" else [at for at, state in states.items() if state == show]
    mask = table.found(q, only, {} if part.whole else part.window(table))
    rows, total = table.rows(mask, sort, down, page)
    for row in rows:
        row["state"] = states.get(row["number"], "")
    names = {"said": table.said, "features": table.pool, "id": table.id, "states": get_args(State)}
    names["search"] = {"q": q, "sort": sort, "down": down, "show": show, "page": page} | part.words()
    found = {"rows": rows, "total": total, "pages": -(-total // PAGE), "part": {} if part.whole else part.words()}
    return data | names | found


def _waiting(view: Any) -> dict[str, Any]:
    return {"step": view.job.step if view.job else "", "error": view.failed[1]}
