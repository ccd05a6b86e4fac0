"""Results of plates with a layout: rows by well become rows by id, and rows of controls are taken out.

Controls are kept in the history (events of kind `controls`, as JSON); a later value of the same plate and well replaces
the earlier one. They show the shift of each plate (`aicau.gp.plates`), and are never predicted.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from aicau.campaign import layout as wells
from aicau.campaign.setup import targets_of
from aicau.core.errors import InputError, shown
from aicau.store import PENDING, Session, changes, schema
from aicau.tables import results
from aicau.tables.candidates import all_ids, described
from aicau.tables.sheet import Sheet

KIND = "controls"


class Control(NamedTuple):
    """One measurement of a control."""

    name: str
    plate: str
    well: str  # or its number among the rows of this control and plate
    value: float
    target: str = ""  # which, in a campaign with several
    line: int = 0  # where it stood, for messages


def _texts(sheet: Sheet, column: str | None, empty: bool = True) -> list[str]:
    """Text without blanks around; empty where the column is missing."""
    return [""] * sheet.rows if column is None else pc.utf8_trim_whitespace(sheet.texts(column, empty)).to_pylist()


def layouts(session: Session) -> dict[int, dict[str, Any]]:
    """The layout of every batch that has one, by its ask: its own, or that of the campaign at that time."""
    now = json.loads(session.meta()["settings"]).get("layout")
    found: dict[int, dict[str, Any]] = {}
    for row, detail in changes.changes(session, "change", "ask"):
        if row.kind == "change":
            now = detail["settings"].get("layout", now)
        elif own := detail.get("layout", now):
            found[row.reference] = own
    return found


def control_names(session: Session) -> set[str]:
    """The names of all controls of the layouts of batches and of the campaign's."""
    every = (*layouts(session).values(), session.settings.get("layout") or {})
    return {name for one in every for name in one.get("controls", ())}


def check_apart(names: Collection[str], ids: pa.Array | pa.ChunkedArray) -> None:
    """Refuse a control with the name of a candidate: results are told by these names."""
    found = pa.array(sorted(names), pa.string())
    if both := found.filter(pc.is_in(found, value_set=pc.utf8_trim_whitespace(ids))).to_pylist():
        raise InputError(
            f"{both[0]!r} is a candidate and a control, and results are told by these names; rename one of them"
        )


def split(sheet: Sheet, session: Session) -> tuple[Sheet, list[Control]]:
    """The rows of candidates, with their ids, and those of controls."""
    every = layouts(session)
    id, well = sheet.called(session.settings["id"]), sheet.called("well")
    if not (every or session.settings.get("layout")) or (id is None and well is None):
        return sheet, []
    if id is None:
        id = session.settings["id"]
        names = _by_well(sheet, session, well, every)
        sheet = replace(sheet, table=sheet.table.append_column(id, pa.array(names, pa.string())))
    elif well is not None:
        _check_wells(sheet, session, id, well, every)
    known = control_names(session)
    mine = np.array([one in known for one in _texts(sheet, id)], dtype=bool)
    return (sheet.where(~mine), _controls(sheet.where(mine), session.settings, id)) if mine.any() else (sheet, [])


def _controls(sheet: Sheet, settings: dict[str, Any], id: str) -> list[Control]:
    batch, several = sheet.called(settings["batch"]), "targets" in settings
    columns = {target: name for target in targets_of(settings) if (name := sheet.called(target)) is not None}
    if batch is None or not columns:
        missing = settings["batch"] if columns else settings["target"]
        raise InputError(f"{sheet.name} has rows of controls but no column {missing!r}, which they need; add it")
    failed = np.array([one.lower() == "failed" for one in _texts(sheet, sheet.called("status"))], dtype=bool)
    rows = list(zip(_texts(sheet, id), _texts(sheet, batch, empty=False), strict=True))  # (control, plate)
    texts, found = _texts(sheet, sheet.called("well")), []
    for target, name in columns.items():
        count = Counter[tuple[str, str]]()
        skip = failed | sheet.blank(name) if several else failed
        value = results.values(sheet, name, skip, results.LARGEST)
        for at in np.flatnonzero(~skip).tolist():
            count[rows[at]] += 1
            where = _well(sheet, at, texts[at]) or f"#{count[rows[at]]}"
            found.append(Control(*rows[at], where, float(value[at]), target if several else "", sheet.row(at)))
    return found


def _well(sheet: Sheet, row: int, text: str) -> str:
    """The name of a well, such as A01; empty for an empty cell."""
    try:
        return wells.name(*wells.place(text)) if text else ""
    except InputError as error:
        raise InputError(f"{sheet.at(row, 'well')}: {error}") from error


def _placed(session: Session) -> list[tuple[Any, str]]:
    """The proposed points that have a well, and their wells."""
    every = [(row, json.loads(row.numbers).get("well")) for row in session.proposals()]
    return [(row, well) for row, well in every if well is not None]


def _contents(placed: list[tuple[Any, str]], every: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What stands in each well of each batch: the number of a candidate, or the name of a control."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for row, well in placed:
        found[row.ask][well] = row.candidate
    for ask, one in every.items():
        found[ask] |= {at: name for name, own in one["controls"].items() for at in own}
    return found


def _check_wells(sheet: Sheet, session: Session, id: str, well: str, every: dict[int, dict[str, Any]]) -> None:
    """An id beside the well of another one: a column was sorted without the others."""
    ids, there = all_ids(session.ids()), defaultdict[str, list[dict[str, str]]](list)
    for own in _contents(_placed(session), every).values():
        named = {at: one if isinstance(one, str) else ids[one].as_py().strip() for at, one in own.items()}
        for name in set(named.values()):
            there[name].append(named)
    for line, (name, text) in enumerate(zip(_texts(sheet, id), _texts(sheet, well), strict=True)):
        at = _well(sheet, line, text) if name in there else ""
        if at and all(own.get(at, name) != name for own in there[name]):
            raise InputError(
                f"{sheet.at(line, well)}: {shown(name)} is in well {at}, and there {shown(there[name][0][at])} was put;"
                " were rows mixed up? If the ids are right, leave the column 'well' out"
            )


def _by_well(sheet: Sheet, session: Session, well: Any, every: dict[int, dict[str, Any]]) -> list[str]:
    """The candidate or control in each well of each plate, by id or name."""
    plates, texts = _texts(sheet, sheet.called(session.settings["batch"]), empty=False), _texts(sheet, well)
    placed = _placed(session)
    places = _contents(placed, every)
    on: dict[str, set[int]] = defaultdict(set)  # plate -> candidates with results of it
    for row in session.measurements(current=False):
        on[row.batch or ""].add(row.candidate)
    pending = sorted({row.ask for row, _ in placed if row.status == PENDING})
    asks: dict[str, int] = {}
    for plate in dict.fromkeys(plates):
        some = [ask for ask, own in places.items() if on[plate] & set(own.values())] or pending
        if len(some) != 1:
            words = "no batch with wells is pending" if not some else f"{len(some)} batches with wells are pending"
            raise InputError(
                f"{sheet.name}: {words}, so it is not clear what plate {plate!r} holds; add the column of ids"
            )
        asks[plate] = some[0]
    found: list[Any] = [places[asks[plate]].get(_well(sheet, n, texts[n])) for n, plate in enumerate(plates)]
    if None in found:
        n = found.index(None)
        words = f"nothing was put into well {shown(texts[n])}; check it, or leave the row out"
        raise InputError(f"{sheet.at(n, well)}: {words}")
    index = sorted({one for one in found if isinstance(one, int)})
    names = dict(zip(index, described(session, index).iloc[:, 0].astype(str), strict=True))
    return [names.get(one, one) for one in found]


def kept(session: Session, basis: int | None = None) -> list[Control]:
    """The last value of each control, plate and well after so many tells."""
    found: dict[tuple[str, str, str, str], Control] = {}
    gone, names = changes.void(session), changes.renamed(session)
    for row, detail in changes.changes(session, KIND):
        if row.reference not in gone and (basis is None or row.reference <= basis):
            for name, plate, well, value, *rest in detail["rows"]:
                one = Control(name, names.get(plate, plate), well, value, *rest)
                if session.target in ("", one.target):
                    found[name, one.plate, well, one.target] = one
    return list(found.values())


def layout_for(
    settings: dict[str, Any],
    plate: Any,
    controls: Mapping[str, Any] | None,
    edges: bool,
    ids: Callable[[], pa.Array | pa.ChunkedArray],  # of the candidates
) -> dict[str, Any] | None:
    """A layout for a campaign with these settings; None where no plate is named."""
    if plate is None:
        if controls or not edges:
            raise InputError("controls and edges belong to a plate; add its layout, such as --layout 96")
        return None
    if settings["batch"] is None:
        raise InputError("plates have names in the results; say which column holds them, such as --batch plate")
    if "well" in (one["name"].strip().casefold() for one in settings["columns"]):
        raise InputError("the candidates have a column 'well', which a layout fills; rename it")
    made = wells.make(plate, controls, edges)
    check_apart(made["controls"], ids())
    return made


def control_rows(layout: dict[str, Any] | None, id: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A batch with the wells of the controls below its points."""
    rows = [(key, at) for key, own in (layout or {}).get("controls", {}).items() for at in own]
    if not rows:
        return frame
    whole = frame.astype({name: "Int64" for name in frame if pd.api.types.is_integer_dtype(frame[name])})
    whole[id] = whole[id].astype(str)  # as the names of controls are: a file has columns of one type
    extra = pd.DataFrame({id: [r[0] for r in rows], "well": [r[1] for r in rows], "reason": "control"})
    return pd.concat([whole, extra], ignore_index=True)


def frame(session: Session) -> pd.DataFrame:
    """Every well that was asked for or holds a control, by ask: its candidate or control, state and result."""
    told: dict[int, list[Any]] = defaultdict(list)
    for row in session.measurements():
        told[row.candidate].append(row)
    asked = _placed(session)
    ids = described(session, [row.candidate for row, _ in asked]).iloc[:, 0].astype(str)
    basis = {row.id: row.basis for row in session.table(schema.asks)}
    rows: list[tuple[Any, ...]] = []
    on: dict[int, str | None] = {}  # the plate of a batch, once something was told of it
    for (row, well), id in zip(asked, ids, strict=True):
        own = [one for one in told[row.candidate] if one.tell > basis[row.ask]]
        good = [one.label or one.value for one in own if one.status == "ok"]
        value = np.mean(good) if good and not isinstance(good[0], str) else good[0] if good else None
        plate = next((one.batch for one in own), None)
        on[row.ask] = on.get(row.ask) or plate
        rows.append((row.ask, plate, well, id, row.status, value, row.why))
    every, controls = layouts(session), {(one.plate, one.well): one.value for one in kept(session)}
    for ask, plate in on.items():
        places = [(name, well) for name, own in every[ask]["controls"].items() for well in own]
        rows += [(ask, plate, at, name, "control", controls.get((plate or "", at)), "control") for name, at in places]
    table = pd.DataFrame(rows, columns=["ask", "plate", "well", "id", "state", "measured", "reason"])
    return table.sort_values(["ask", "well"], kind="stable", ignore_index=True) if len(rows) > len(asked) else table
