"""Where on a plate each point goes: wells at random by the campaign's seed, controls near everything.

| rule | why |
|---|---|
| no well is far from a control | controls show the shift of every part of the plate |
| replicates of a candidate balance each other: opposite places, edge and inside | effects of the place average out |
| replicates are not side by side, where there is room | neighbours share errors |
| everything else is at random | effects of the place do not depend on the candidate |
| edge wells may be left empty | they dry out first |

A layout is plain JSON in the settings of a campaign: `wells` for points, `controls` with the wells of each by name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown

PLATES = {"96": (8, 12), "384": (16, 24)}
STARTS = 8
EDGE = 8.0  # distance, in wells, between the edge and the inside when replicates are balanced
NEAR = 1.5  # wells side by side or corner to corner


def place(well: Any) -> tuple[int, int]:
    """Row and column, from 0, of a well such as A1, a01 or AF48."""
    found = re.fullmatch(r"\s*([A-Za-z]{1,2})0*([1-9]\d?)\s*", str(well))
    if not found:
        raise InputError(f"{shown(well)} is not a well; write a letter and a number, such as B07")
    row = 0
    for letter in found[1].upper():
        row = 26 * row + ord(letter) - 64
    return row - 1, int(found[2]) - 1


def name(row: int, column: int) -> str:
    """A01 for A1, so that names sort in the order of the wells."""
    letters = chr(65 + row) if row < 26 else chr(64 + row // 26) + chr(65 + row % 26)
    return f"{letters}{column + 1:02d}"


def make(plate: Any, controls: Mapping[str, Any] | None = None, edges: bool = True) -> dict[str, Any]:
    """The layout of a plate.

    Parameters
    ----------
    plate : int, str or Path
        96 or 384, or a CSV or Excel file with a column `well` of the wells that may be used.
    controls : mapping, optional
        How many wells each control has, or which: {"DMSO": 8, "blank": ["A01", "H12"]}.
    edges : bool
        False leaves the outermost wells empty; a control may still name them.
    """
    places = _places(plate)
    size = tuple(int(end) + 1 for end in np.max(places, 0))
    if not edges:
        places = [(r, c) for r, c in places if 0 < r < size[0] - 1 and 0 < c < size[1] - 1]
    if not isinstance(controls or {}, Mapping):
        raise InputError(f"controls are names and their wells, such as {{'DMSO': 8}}; got {shown(controls)}")
    given = {str(key).strip(): value for key, value in (controls or {}).items()}
    if "" in given:
        raise InputError("a control needs a name, such as DMSO=8")
    lists = {key: [value] if isinstance(value, str) else value for key, value in given.items()}
    taken = {key: [*map(place, own)] for key, own in lists.items() if not isinstance(own, int | float | np.integer)}
    named = [one for own in taken.values() for one in own]
    if len(set(named)) < len(named):
        raise InputError("two controls name the same well; give each well to one of them")
    if outside := [one for one in named if one[0] >= size[0] or one[1] >= size[1]]:
        raise InputError(f"well {name(*outside[0])} of a control is not on this plate")
    left = [one for one in places if one not in set(named)]
    for key, value in given.items():
        if key not in taken:
            if not 1 <= value < len(left) or value % 1:
                raise InputError(f"control {key!r} needs between 1 and {len(left) - 1} wells; got {shown(value)}")
            taken[key] = centres(left, int(value))
            left = [one for one in left if one not in set(taken[key])]
    if not left:
        raise InputError("no well is left for the points; use fewer controls or allow the edges")
    return {
        "rows": size[0],
        "columns": size[1],
        "wells": [name(*one) for one in left],
        "controls": {key: [name(*one) for one in sorted(taken[key])] for key in given},
    }


def read_controls(words: Sequence[str] | None) -> dict[str, int | list[str]]:
    """From NAME=8 or NAME=A01+H12, once per control, to what `make` takes."""
    found: dict[str, int | list[str]] = {}
    for word in words or ():
        name, _, rest = (part.strip() for part in word.partition("="))
        if not name or not rest or name in found:
            raise InputError(f"control {word!r} cannot be read; write each name once, such as DMSO=8 or DMSO=A01+H12")
        found[name] = int(rest) if rest.isdecimal() else rest.split("+")
    return found


def _places(plate: Any) -> list[tuple[int, int]]:
    if (size := PLATES.get(str(plate).strip())) is not None:
        return [(row, column) for row in range(size[0]) for column in range(size[1])]
    if str(plate).strip().isdigit():
        raise InputError(f"a plate has 96 or 384 wells; got {plate}; for others give a CSV file with a column 'well'")
    from aicau import tables

    found = [place(well) for well in tables.read(Path(str(plate))).texts("well").to_pylist()]
    if len(set(found)) < len(found):
        raise InputError(f"{plate} names a well twice; name every well once")
    return found


def distances(one: Any, other: Any) -> NDArray[np.float64]:
    """Distances between wells, in wells."""
    a, b = (np.asarray(part, dtype=float).reshape(-1, 2) for part in (one, other))
    return np.asarray(np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1)))


def centres(wells: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """That many wells, so that every well is near one of them.

    Exchanges lower the mean eighth power of the distances, from some random starts; the same for every seed.
    """
    powers = distances(wells, wells) ** 8
    rng = np.random.default_rng(0)
    found: tuple[float, list[int]] = (np.inf, [])
    for _ in range(STARTS):
        chosen = rng.choice(len(wells), count, replace=False).tolist()
        best = np.inf
        while True:
            for at in range(count):
                others = chosen[:at] + chosen[at + 1 :]
                rest = powers[:, others].min(1) if others else np.full(len(wells), np.inf)
                chosen[at] = int(np.minimum(rest[:, None], powers).sum(0).argmin())
            cost = float(powers[:, chosen].min(1).sum())
            if cost >= best:
                break
            best = cost
        if best < found[0]:
            found = (best, chosen)
    return [wells[at] for at in found[1]]


def check_fits(layout: Mapping[str, Any] | None, n: int) -> None:
    """Refuse a batch that does not fit on one plate."""
    if layout and n > (free := len(layout["wells"])):
        raise InputError(f"{n} points do not fit on a plate with {free} free wells; ask for {free} at most, per plate")


def assign(layout: Mapping[str, Any], points: Sequence[int], seed: Sequence[int]) -> list[str]:
    """The well of every point of a batch; equal numbers are replicates."""
    check_fits(layout, len(points))
    free = [place(well) for well in layout["wells"]]
    rng = np.random.default_rng([abs(part) for part in seed])
    used = rng.permutation(len(free))[: len(points)]
    at = np.asarray(free, dtype=float)[used]
    border = np.array([layout["rows"], layout["columns"]]) - 1
    edge = ((at == 0) | (at == border)).any(1)
    # What replicates balance: their places, and being at the edge.
    spot = np.column_stack([at, EDGE * edge])
    spot = spot - spot.mean(0)
    open_ = np.ones(len(used), dtype=bool)
    groups = [np.flatnonzero(np.equal(points, point)).tolist() for point in dict.fromkeys(points)]
    shuffled = [groups[one] for one in rng.permutation(len(groups))]
    found: list[int] = [-1] * len(points)
    for rows in sorted(shuffled, key=len, reverse=True):  # replicates first: they are the hardest to place
        own: list[int] = []
        for number, row in enumerate(rows):
            cost = rng.random(len(used))
            if number:
                cost = cost + 10 * np.linalg.norm(spot + spot[own].sum(0), axis=1)
                beside = (np.linalg.norm(at[:, None] - at[own][None], axis=2) < NEAR).any(1)
                cost[beside] += 1e6  # only where nothing else is left
            elif len(rows) > 1:  # from the outside to the middle, where balance is easy
                cost = cost - 10 * np.linalg.norm(spot, axis=1)
            cost[~open_] = np.inf
            well = int(cost.argmin())
            open_[well] = False
            own.append(well)
            found[row] = int(used[well])
    _part(found, groups, np.asarray(free, dtype=float))
    return [name(*free[well]) for well in found]


def _part(found: list[int], groups: Sequence[Sequence[int]], at: NDArray[np.float64]) -> None:
    """Exchange wells until no replicates are side by side, where possible; of all exchanges those that keep balance."""
    group = {row: own for own in groups for row in own}
    middle = at[found].mean(0)

    def close(rows: Sequence[int]) -> int:
        places = at[[found[row] for row in rows]]
        return int((distances(places, places) < NEAR).sum()) - len(rows)

    def off(rows: Sequence[int]) -> float:
        return float(np.linalg.norm(at[[found[row] for row in rows]].mean(0) - middle))

    for rows in groups:
        if not close(rows):
            continue
        best: tuple[float, int] | None = None
        for other in group:
            if other in rows or (before := close(group[other])):
                continue
            found[rows[-1]], found[other] = found[other], found[rows[-1]]
            if close(rows) == 0 and close(group[other]) <= before:
                cost = off(rows) + (off(group[other]) if len(group[other]) > 1 else 0.0)
                best = min(best or (np.inf, -1), (cost, other))
            found[rows[-1]], found[other] = found[other], found[rows[-1]]
        if best is not None:
            found[rows[-1]], found[best[1]] = found[best[1]], found[rows[-1]]
