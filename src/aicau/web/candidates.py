"""All candidates of a campaign for the pages: search, sort, page by page, and as a map; a million of them, too.

The background process writes them into an Arrow file, which is mapped into memory here.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape
from numpy.typing import NDArray

from aicau.core.errors import InputError, unknown
from aicau.tables.kinds import is_numeric, is_text

POOL, SAID, PLACE = "p:", "m:", "x:"  # columns: of the pool, of the model, in two dimensions
PAGE = 50  # rows
BINS = (64, 40)  # across and down
MOST_POINTS = 1500  # drawn one by one; more are put into bins
SHADES = 8  # of a colour scale
WIDE, HIGH = 960, 600  # of the map
INTERVAL = "width of the interval"
BESIDE = 20  # rows of the table under the map
MOST_SCENES = 20  # maps that are kept

Window = Mapping[str, tuple[float, float]]  # of each column: from, to


class Candidates:
    """All candidates of one campaign with the predictions of one model."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.path = str(result["path"])
        with pa.memory_map(self.path) as source:
            self.table = pa.ipc.open_file(source).read_all()
        self.axes: tuple[str, str] = tuple(result["axes"])
        self.n = self.table.num_rows
        names = self.table.column_names
        self.id = names[0].removeprefix(POOL)
        self.pool = [name.removeprefix(POOL) for name in names[1:] if name.startswith(POOL)]
        self.said = [name.removeprefix(SAID) for name in names if name.startswith(SAID)]
        self._orders: dict[str, NDArray[np.int64]] = {}
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._scenes: dict[Any, dict[str, Any]] = {}

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the pool, or of the predictions."""
        for prefix in (POOL, SAID):
            if f"{prefix}{name}" in self.table.column_names:
                return self.table.column(f"{prefix}{name}")
        raise unknown("column", name, [self.id, *self.pool, *self.said])

    def numbers(self, name: str) -> NDArray[np.float64]:  # (n,)
        """A column as numbers; texts are numbered in their order."""
        if name not in self._numbers:
            if name == INTERVAL:
                found = self.numbers("high") - self.numbers("low")
            else:
                place = name and name in self.axes
                column = self.table.column(f"{PLACE}{self.axes.index(name)}") if place else self.column(name)
                if not is_numeric(column.type):
                    column = pc.rank(column.cast(pa.string()), tiebreaker="dense")
                found = np.asarray(column.to_numpy(), dtype=float)
            self._numbers[name] = found
        return self._numbers[name]

    def colours(self) -> list[str]:
        """The columns that can colour a map."""
        own = [name for name in self.said if is_numeric(self.column(name).type)]
        drop = ("low", "high", "new_low", "new_high")
        return [*(name for name in own if name not in drop), *([INTERVAL] if "high" in own else [])]

    def places(self) -> list[str]:
        """The columns that can be axes of a map."""
        return [*dict.fromkeys([*(name for name in self.axes if name), *self.pool])]

    def order(self, name: str) -> NDArray[np.int64]:
        """Numbers of candidates, sorted by a column."""
        if name not in self._orders:
            self._orders[name] = np.asarray(pc.sort_indices(self.column(name)).to_numpy(), dtype=np.int64)
        return self._orders[name]

    def found(self, words: str, only: Collection[int] | None, window: Window) -> Any:
        """Whether each candidate has the words in a text, is one of `only` and is inside the window."""
        mask = np.ones(self.n, dtype=bool)
        if words:
            texts = [self.id, *(name for name in self.pool if is_text(self.column(name).type))]
            hits = [pc.match_substring(self.column(name).cast(pa.string()), words, ignore_case=True) for name in texts]
            mask &= np.logical_or.reduce([np.asarray(pc.fill_null(hit, False)) for hit in hits])
        if only is not None:
            inside = np.zeros(self.n, dtype=bool)
            inside[[at for at in only if at < self.n]] = True
            mask &= inside
        for name, (low, high) in window.items():
            values = self.numbers(name)
            mask &= (values >= low) & (values <= high)
        return mask

    def rows(self, mask: Any, sort: str, down: bool, page: int) -> tuple[list[dict[str, Any]], int]:
        """One page of the candidates in a mask, and how many there are."""
        order = self.order(sort) if sort else np.arange(self.n)
        order = order[mask[order]][:: -1 if down else 1]
        some = order[(page - 1) * PAGE : page * PAGE]
        names = {f"{prefix}{name}": name for prefix, own in ((SAID, self.said), (POOL, self.pool)) for name in own}
        picked = self.table.select([f"{POOL}{self.id}", *names]).take(pa.array(some)).to_pylist()
        return [
            {name: row[key] for key, name in names.items()} | {"number": int(at), "id": str(row[f"{POOL}{self.id}"])}
            for at, row in zip(some, picked, strict=True)
        ], len(order)

    def scene(self, x: str, y: str, colour: str, window: Window) -> dict[str, Any]:
        """The map of a window, its shapes as SVG, and the first rows of the table below it; the last maps are kept."""
        place = (x, y, colour, *window.items())
        if place not in self._scenes:
            mask = self.found("", None, window)
            drawn = self.map(x, y, colour, mask)
            rows, total = self.rows(mask, colour, colour != "", 1)
            scene = {"map": drawn, "shapes": shapes(drawn, colour), "rows": rows[:BESIDE], "total": total, "mask": mask}
            self._scenes = dict([*self._scenes.items()][1 - MOST_SCENES :]) | {place: scene}
        return dict(self._scenes[place])

    def map(self, x: str, y: str, colour: str, mask: Any) -> dict[str, Any]:
        """Points in pixels with their shades; bins where there are many points."""
        if colour not in ("", *self.colours()):
            raise unknown("column", colour, self.colours())
        at = np.flatnonzero(mask)
        if not len(at):
            raise InputError("no candidate lies here; show all of them again")
        across, up = self.numbers(x)[at], self.numbers(y)[at]
        ends = [(float(v.min()), float(v.max())) for v in (across, up)]
        ends = [(low, high) if high > low else (low - 0.5, high + 0.5) for low, high in ends]
        left, top = _pixels(across, up, ends)
        values = self.numbers(colour)[at] if colour else np.zeros(len(at))
        low, high = np.quantile(values, [0.01, 0.99])
        found: dict[str, Any] = {"x": x, "y": y, "ends": ends, "count": len(at), "scale": [float(low), float(high)]}
        if len(at) <= MOST_POINTS:
            shown = {"number": at, "left": left, "top": top, "value": values, "shade": _shade(values, low, high)}
            return found | {"points": self._listed(at, shown), "bins": []}
        wide, tall = WIDE / BINS[0], HIGH / BINS[1]
        cell = np.minimum(left // wide, BINS[0] - 1) * BINS[1] + np.minimum(top // tall, BINS[1] - 1)
        places, first, where, count = np.unique(
            cell.astype(np.int64), return_index=True, return_inverse=True, return_counts=True
        )
        mean = np.bincount(where, values) / count
        shown = {"left": places // BINS[1] * wide, "top": places % BINS[1] * tall, "count": count, "value": mean}
        bins = self._listed(at[first], shown | {"shade": _shade(mean, low, high)})
        return found | {"points": [], "bins": bins, "wide": wide, "high": tall}

    def marks(
        self, x: str, y: str, ends: Sequence[tuple[float, float]], numbers: Collection[int], mask: Any
    ) -> list[dict[str, Any]]:
        """The places of some candidates on the same map."""
        some = np.array([at for at in numbers if at < self.n and mask[at]], dtype=np.int64)
        left, top = _pixels(self.numbers(x)[some], self.numbers(y)[some], ends)
        return self._listed(some, {"left": left, "top": top})

    def _listed(self, at: NDArray[np.int64], columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
        """Rows of some candidates: the id and these columns."""
        ids = self.column(self.id).take(pa.array(at, pa.int64())).cast(pa.string())
        return pa.table({"id": ids, **columns}).to_pylist()


def shapes(drawn: Mapping[str, Any], colour: str) -> Markup:
    """The SVG of the bins or points of a map: thousands, too many for a template."""
    size = f'width="{drawn["wide"] - 0.6:.1f}" height="{drawn["high"] - 0.6:.1f}"' if drawn["bins"] else ""
    parts = []
    for one in (*drawn["bins"], *drawn["points"]):
        id, left, top = escape(one["id"]), f"{one['left']:.1f}", f"{one['top']:.1f}"
        said = f": {escape(colour)} {one['value']:.3g}" if colour else ""
        if size:
            words = f"{one['count']} candidates, among them {id}{said}"
            parts.append(f'<rect class="s{one["shade"]}" x="{left}" y="{top}" {size}><title>{words}</title></rect>')
        else:
            parts.append(f'<circle class="s{one["shade"]}" cx="{left}" cy="{top}" r="6" data-id="{id}">')
            parts.append(f"<title>{id}{said}</title></circle>")
    return Markup("".join(parts))


def _pixels(across: NDArray[Any], up: NDArray[Any], ends: Sequence[tuple[float, float]]) -> tuple[NDArray[Any], ...]:
    (left, right), (bottom, top) = ends
    return (across - left) / (right - left) * WIDE, HIGH - (up - bottom) / (top - bottom) * HIGH


def _shade(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    if not high > low:
        return np.full(len(values), SHADES // 2)
    return np.clip((values - low) / (high - low) * SHADES, 0, SHADES - 1).astype(np.int64)
