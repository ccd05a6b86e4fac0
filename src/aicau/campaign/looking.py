"""The state of a campaign, and the verbs that only read it: settings, batches, measurements, history."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import pyarrow as pa

from aicau.campaign import plates
from aicau.campaign.models import Models
from aicau.campaign.setup import check_author, strategy_of, targets_of, task_of
from aicau.core.errors import InputError, shown, unknown
from aicau.store import (
    ABANDONED,
    COMPLETED,
    FAILED,
    PENDING,
    Check,
    Moment,
    Session,
    Store,
    examine,
    numbers_of,
    schema,
)
from aicau.tables import candidates

if TYPE_CHECKING:
    from aicau.strategy import Strategy

STATES = [PENDING, COMPLETED, FAILED, ABANDONED]  # of a proposed point
LONG = ("answered", "answers", "candidates", "confirmed", "suspects")  # details that the history leaves out


class Looking:
    """A campaign and its verbs that change nothing and compute no model."""

    def __init__(self, store: Store, author: str | None = None) -> None:
        if not isinstance(store, Store):
            raise InputError(
                f"open a campaign with Campaign.open({shown(store)}), or make one with Campaign.create({shown(store)},"
                " pool, target)"
            )
        self.store = self.whole = store  # `whole`: with all targets, where this is one of several
        self.author = check_author(author)
        self.models = Models(store)
        self._views: dict[str, Self] = {}

    def of(self, target: str) -> Self:
        """One of several targets, as a campaign of its own: what it predicts, how good that is, its figures.

        Examples
        --------
        >>> import pandas as pd
        >>> from aicau import Campaign
        >>> pool = pd.DataFrame({"id": list("abcdef"), "dose": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
        >>> with Campaign.create("two.db", pool, target=["yield", "purity"]) as campaign:
        ...     campaign.of("purity").settings["target"]
        'purity'
        """
        if target not in self.targets:
            raise unknown("target", str(target), list(self.targets))
        if len(self.targets) == 1:
            return self
        if target not in self._views:
            view = self._views[target] = type(self)(self.store.of(target), self.author)
            view.models.pool, view.whole = self.models, self.store
        return self._views[target]

    def views(self) -> list[Self]:
        """One campaign for each target."""
        return [self.of(target) for target in self.targets]

    def close(self) -> None:
        """Close the file or the connection."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def settings(self) -> dict[str, Any]:
        return self.store.settings

    @property
    def targets(self) -> dict[str, float]:
        """The name of each target, and its weight when a batch is chosen."""
        return targets_of(self.settings)

    def refreshed(self) -> dict[str, Any]:
        """The settings as they are now, after a change."""
        with self.store.reading():
            return self.settings

    @property
    def name(self) -> str:
        """The name of its file or database."""
        return Path(self.store.where).name

    @property
    def n(self) -> int:
        return int(self.settings["candidates"])

    @property
    def task(self) -> str:
        return task_of(self.settings)

    @property
    def strategy(self) -> "Strategy":
        return strategy_of(self.settings)

    def _ids(self) -> pa.Array:
        with self.store.reading() as session:
            return candidates.all_ids(session.ids())

    def blank_columns(self) -> list[str]:
        """Columns of results that a laboratory fills in: the target, the batch where there is one, the status."""
        return [*self.targets, *filter(None, [self.settings["batch"]]), "status"]

    def pending(self, ask: int | None = None) -> pd.DataFrame:
        """The points that were asked for and neither told nor abandoned yet, as `ask` handed them out; of one batch
        (its number in `batches`) or of all."""
        with self.store.reading() as session:
            if ask is not None and ask not in range(1, session.number(schema.asks.c.id) + 1):
                raise InputError(f"there is no batch {ask}; 'aicau batches' lists them with their numbers")
            return handed_out(session, session.proposals(ask, PENDING))

    def batches(self) -> pd.DataFrame:
        """Every batch that was asked for: number, time, author, round, request, and the states of its points."""
        with self.store.reading() as session:
            said = {row.reference: (row.time, row.author) for row in session.table(schema.events) if row.kind == "ask"}
            states = Counter((row.ask, row.status) for row in session.proposals())
            rows = [
                (a.id, *said[a.id], a.round, a.request, a.strategy, a.size, *(states[a.id, one] for one in STATES))
                for a in session.table(schema.asks)
            ]
        names = ["batch", "time", "author", "round", "request", "strategy", "points", *STATES]
        return pd.DataFrame(rows, columns=names)

    def last_batch(self) -> tuple[pd.DataFrame | None, list[str], int | None]:
        """The last batch that was asked for, the state of each of its points, and its round; None before the first."""
        with self.store.reading() as session:
            if not (asks := session.table(schema.asks)):
                return None, [], None
            last, points = asks[-1], session.proposals(asks[-1].id)
            return handed_out(session, points), [one.status for one in points], last.round

    def describe(self, index: Sequence[int]) -> pd.DataFrame:
        """Ids and columns of some candidates, by their place in the table of candidates."""
        with self.store.reading() as session:
            return candidates.described(session, index)

    def plates(self) -> pd.DataFrame:
        """Every well that was asked for or holds a control: ask, plate, well, id, state, measured, reason."""
        with self.store.reading() as session:
            if not self.settings.get("layout") and not plates.layouts(session):
                raise InputError("this campaign has no layout; give it one: 'aicau change CAMPAIGN --layout 96'")
            if len(self.targets) == 1:
                return plates.frame(session)
            parts = [plates.frame(session.of(name)).assign(target=name) for name in self.targets]
        return pd.concat(parts, ignore_index=True)

    def layouts(self) -> dict[int, dict[str, Any]]:
        """The layout of every batch that has one: `rows` and `columns` of the plate, `wells` for points, `controls`."""
        with self.store.reading() as session:
            return plates.layouts(session)

    def version(self) -> int:
        """A number that grows with every change of the campaign."""
        with self.store.reading() as session:
            return session.number(schema.events.c.id)

    def moment(self) -> Moment:
        """Everything that the next batch depends on, as it is now."""
        with self.store.reading() as session:
            return Moment.read(session)

    def doctor(self) -> list[Check]:
        """Check that the campaign is whole and consistent; nothing is changed."""
        return examine(self.whole)

    def measurements(self, current: bool = True) -> pd.DataFrame:
        """The results so far: id, target, batch, replicate, status, sem, count, tell, time and author. With
        `current=False` also rows that were replaced or taken back, and by which tell."""
        with self.store.reading() as session:
            table = pd.DataFrame(session.measurements(current), columns=schema.measurements.columns.keys())
            said = {row.reference: row for row in session.table(schema.events) if row.kind not in ("ask", "create")}
            found = candidates.described(session, list(table.candidate))[[self.settings["id"]]]
        result = table.label if self.task == "classification" else table.value.astype("float64")
        for target in self.targets:
            found[target] = result if len(self.targets) == 1 else result.where(table.target == target, None)
        if len(self.targets) > 1:
            found["target"] = table.target
        if self.settings["batch"] is not None:
            found[self.settings["batch"]] = table.batch
        found["replicate"], found["status"] = table.replicate.astype("Int64"), table.status
        found["sem"], found["count"], found["tell"] = table["sem"].astype("Float64"), table.repeats, table.tell
        for name in ("time", "author"):
            found[name] = [getattr(said[tell], name) for tell in table.tell]
        return found if current else found.assign(superseded_by=table.superseded_by.astype("Int64"))

    def history(self) -> pd.DataFrame:
        """All that happened: time, author, what, the number of the ask or tell, and details."""
        with self.store.reading() as session:
            rows = session.table(schema.events)
        found = [(row.time, row.author, row.kind, row.reference, _brief(row.detail)) for row in rows]
        table = pd.DataFrame(found, columns=["time", "author", "what", "number", "detail"])
        return table.astype({"number": "Int64"})


def handed_out(session: Session, rows: Sequence[Any]) -> pd.DataFrame:
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


def _brief(text: str) -> str:
    """The details of an event in words, without long ones."""
    detail = json.loads(text)
    detail |= {k: v for k, v in detail.pop("settings", {}).items() if k != "columns"}
    if layout := detail.get("layout"):
        detail["layout"] = f"{layout['rows']} x {layout['columns']}"
    for name, value in detail.items():
        if isinstance(value, list) and value:  # of lists (values of controls): how many there are
            detail[name] = len(value) if isinstance(value[0], list) else " ".join(map(str, value))
    return ", ".join(f"{k} {v}" for k, v in detail.items() if k not in LONG and v not in (None, "", []))
