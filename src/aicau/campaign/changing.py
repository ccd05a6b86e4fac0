"""The verbs of a campaign that change it while it runs: candidates, names, settings, results told by mistake."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.looking import Looking
from aicau.campaign.setup import check_counts, check_goal, check_model, check_name, check_size, ensemble_of
from aicau.core.errors import InputError, shown
from aicau.core.files import check_other
from aicau.store import changes
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet, flags

WHOLE = r"^(0|-?[1-9]\d{0,17})$"  # ids that can be handed out as numbers of 64 bits
FAR = 1e12  # standard deviations of a column


class Changing(Looking):
    """The verbs of a campaign that change it; each is a new row of its history."""

    def untell(self, tell: int) -> dict[str, int]:
        """Take back a tell, a correction or a renaming by its number (`history` has it). Its rows stay, marked as
        superseded; what it had replaced counts again, and the points it had answered are pending again.

        Returns how many rows are `gone`, are `back`, and how many points are `pending` again.
        """
        tell = check_size(tell, "a tell is called by its number in the history, a whole number")
        with self.store.writing() as session:
            gone, back, pending = changes.untell(session, tell, self.author)
        return {"gone": gone, "back": back, "pending": pending}

    def abandon(self, ids: Iterable[str] | str) -> int:
        """Give up pending points: they are not proposed again. Returns how many there were."""
        return self._each(changes.abandon, ids)

    def exclude(self, ids: Iterable[str] | str, reason: str) -> dict[str, int]:
        """Exclude candidates from all further batches, with a reason. Their measurements stay.

        Returns how many were `excluded`, and how many `pending` points were given up with them.
        """
        count, pending = self._each(changes.exclude, ids, check_name("the reason", reason))
        return {"excluded": count, "pending": pending}

    def include(self, ids: Iterable[str] | str, reason: str = "") -> int:
        """Let excluded or abandoned candidates be proposed again. Returns how many there were."""
        return self._each(changes.include, ids, reason)

    def confirm(self, ids: Iterable[str] | str) -> int:
        """Confirm unusual values of these candidates: `warnings` lists them no longer. Returns how many there were."""
        return self._each(changes.confirm, ids)

    def _each(self, change: Callable[..., Any], ids: Any, *reason: str) -> Any:
        """Make a change of `aicau.store.changes` to candidates by their ids."""
        several = isinstance(ids, Iterable) and not isinstance(ids, str)
        names = [str(name).encode(errors="replace").decode() for name in (ids if several else [ids])]
        if not names:
            raise InputError(f"name at least one id to {change.__name__}")
        with self.store.writing() as session:
            index = results.find(pa.array(names), candidates.all_ids(session.ids()))
            return change(session, dict(zip(index, names, strict=True)), *reason, self.author)

    def add(self, table: Any, sheet: str | None = None, skip: int = 0) -> dict[str, int]:
        """Add candidates, in a table with the columns of the first ones. Known candidates are skipped, and refused if
        their features differ.

        Returns how many were `added`, how many were `known`, and how many `candidates` there are now.
        """
        check_other(table, self.store.engine.url.database)
        read = tables.read(table, "the candidates" if isinstance(table, pd.DataFrame) else None, sheet, skip)
        with self.store.writing() as session:
            settings, id = self.settings, self.settings["id"]
            known = results.places(read.texts(id), candidates.all_ids(session.ids()))
            old = flags(pc.is_valid(known))
            columns = candidates.extended(read, settings["columns"])
            if old.any():
                _check_same(read.where(old), candidates.described(session, known.drop_null().to_pylist()), columns)
            new = read.where(~old)
            if new.rows:
                plates.check_apart(plates.control_names(session), new.texts(id))
                check_counts(new, settings.get("weight"), settings.get("cost"))
                _check_near(new, columns)
                first = candidates.unpack(next(session.features())[2]).schema
                pieces = list(candidates.cut(new, id, columns, first))
                now = {"candidates": settings["candidates"] + new.rows, "columns": columns}
                if not pc.all(pc.match_substring_regex(new.texts(id), WHOLE)).as_py():
                    now["id_kind"] = "text"
                candidates.check_width(read.name, now["candidates"], columns)
                session.add_chunks(pieces)
                session.drop_models(())  # they are of the smaller pool
                changes.numbered(session, "add", self.author, [], settings=now)
        return {"added": new.rows, "known": int(old.sum()), "candidates": self.refreshed()["candidates"]}

    def rename(self, old: str, new: str) -> int:
        """Rename a batch, or join it with one that exists already. Returns how many rows were renamed."""
        old, new = (check_name("a batch", name).strip() for name in (old, new))
        if len(new) > results.LONGEST:
            raise InputError(f"this name has more than {results.LONGEST} characters; shorten it")
        if old == new:
            raise InputError(f"{old!r} is its name already; nothing was changed")
        with self.store.writing() as session:
            return changes.rename(session, old, new, self.author)

    def change(
        self,
        strategy: str | None = None,
        batch: str | None = None,
        goal: str | None = None,
        weight: str | None = None,
        layout: int | str | Path | None = None,
        controls: Mapping[str, Any] | None = None,
        edges: bool = True,
    ) -> dict[str, Any]:
        """Change strategy, goal, weight or plate (`layout` "none": no plate) from the next batch on, or add a batch
        column to a campaign without one (tell the earlier files again: their rows get their batch). Earlier batches
        keep their wells. Returns the new settings."""
        with self.store.writing() as session:
            settings = self.settings
            if strategy is not None:
                check_model(strategy, settings["seed"], self.task, ensemble_of(settings))
            if weight is not None:
                self.models.weights(weight)  # refuses columns that are no weights
            batch = None if batch is None else self._batch_column(batch)
            goal = None if goal is None else check_goal(goal, self.task)
            given = {"strategy": strategy, "batch": batch, "goal": goal, "weight": weight}
            new: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            if layout == "none":
                new["layout"] = None
            elif (made := plates.layout_for(settings | new, layout, controls, edges, self._ids)) is not None:
                new["layout"] = made
            new = {name: value for name, value in new.items() if value != settings.get(name)}
            if not new:
                raise InputError(
                    "nothing is to be changed; name another strategy, goal, weight, layout or batch column"
                )
            changes.numbered(session, "change", self.author, [], settings=new)
        self.refreshed()
        return new

    def _batch_column(self, batch: str) -> str:
        """The name of the batch column, for a campaign that began without one."""
        name, settings = check_name("the batch column", batch).strip(), self.settings
        if settings["batch"] not in (None, name):
            raise InputError(f"the batch column is {settings['batch']!r}; rename the column of the file to that")
        own = {settings["id"], *self.targets, *(column["name"] for column in settings["columns"])}
        if name.casefold() in {other.casefold() for other in (*own, *candidates.RESERVED)}:
            raise InputError(f"the batch column cannot be called {name!r}: another column has this name")
        return name

    def compact(self) -> dict[str, int]:
        """Drop the kept models that no batch needs any more, and give the room back. Nothing that was asked or told
        changes; a report then has held-out errors of the last rounds only.

        Returns how many models were dropped, and their size in bytes.
        """
        dropped, freed = self.store.compact(1 + self.strategy.difference, self.author)
        return {"dropped": dropped, "bytes": freed}


def _check_same(sheet: Sheet, before: pd.DataFrame, columns: list[dict[str, Any]]) -> None:
    """Refuse other features of candidates that are there already."""
    for name, kind in ((column["name"], column["kind"]) for column in columns if column["kind"] != "ignored"):
        now = sheet.numbers(name).tolist() if kind == "number" else sheet.texts(name).to_pylist()
        for at, (one, old) in enumerate(zip(now, before[name], strict=True)):
            if one != old:
                raise InputError(
                    f"{sheet.at(at, name)}: {shown(one)}, and this candidate is there with {shown(old)}; features"
                    " of a candidate do not change: give it a new id, or leave the row out"
                )


def _check_near(sheet: Sheet, columns: list[dict[str, Any]]) -> None:
    """Refuse numbers so large that no model could be computed any more: candidates cannot be removed."""
    for name, shift, scale in ((c["name"], c["shift"], c["scale"]) for c in columns if c["kind"] == "number"):
        words = f"is too far from the other candidates (about {shift:.3g}); is it a slip?"
        sheet.refuse(name, np.abs(sheet.numbers(name) - shift) > FAR * scale, words)
