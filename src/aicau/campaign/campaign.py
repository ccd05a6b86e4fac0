"""A laboratory's campaign: ask for a batch, measure it, tell what came out, again and again; nothing is ever lost.

Its state is a store; the models it has at hand are kept there, too. PyTorch is imported by the verbs that compute
(`ask`, `predict`, `report`): `tell` and `status` answer without it.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.campaign import handout
from aicau.campaign.models import Models
from aicau.campaign.setup import (
    check_address,
    check_goal,
    check_model,
    check_name,
    check_room,
    check_size,
    default_author,
    settings_for,
    strategy_of,
    task_of,
)
from aicau.core.errors import InputError
from aicau.core.files import check_new, check_other, is_report, named, write_whole
from aicau.store import PENDING, Check, Moment, Store, create_store, examine, open_store, schema
from aicau.tables import candidates, results

if TYPE_CHECKING:
    from aicau.campaign.model import Model
    from aicau.strategy import Strategy


class Campaign:
    """A laboratory's campaign: ask, measure, tell, predict, again and again. The only class with state.

    Make one with `Campaign.create`, open one with `Campaign.open`; use it in a `with` block or call `close`.

    Examples
    --------
    >>> import pandas as pd
    >>> from aicau import Campaign
    >>> pool = pd.DataFrame({"id": list("abcdef"), "dose": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> with Campaign.create("example.db", pool, target="viability") as campaign:
    ...     batch = campaign.ask(3)
    ...     told = campaign.tell(pd.DataFrame({"id": batch["id"], "viability": [0.9, 0.5, 0.1]}))
    ...     len(campaign.predict())
    6
    """

    def __init__(self, store: Store, author: str | None = None) -> None:
        self.store = store
        self.author = check_name("the author", author or default_author())
        self.models = Models(store)

    @classmethod
    def create(
        cls,
        url: str | Path,
        pool: Any,
        target: str,
        batch: str | None = None,
        strategy: str | None = None,
        seed: int = 0,
        id: str | None = None,
        ignore: Sequence[str] = (),
        author: str | None = None,
        task: str = "regression",
        ensemble: str = "combined",
        goal: str = "map",
        weight: str | None = None,
    ) -> "Campaign":
        """A new campaign over a table of candidates.

        Parameters
        ----------
        url : str or Path
            A file such as screen.db that does not exist yet, or postgresql://user@host/database.
        pool : str, Path or DataFrame
            The candidates: a CSV or Parquet file, or a table.
        target, batch : str
            What the columns of the results will be called; `batch` is what is measured together, a plate or a day.
        strategy : str, optional
            `default` if not given.
        seed : int
        id : str, optional
            The column of the pool that tells candidates apart; "id" if not given.
        ignore : sequence of str
            Columns that are kept and handed back but are no features.
        author : str, optional
        task : {"regression", "classification", "count"}
            What a result is: a value, one of some labels, or a whole number from 0.
        ensemble : {"combined", "paper"}
            What predicts: the networks combined with Gaussian processes and trees, or the paper's networks alone.
        goal : str
            What the campaign is for: a good prediction of all candidates (map), of the best twentieth (max, min), or of
            those beyond a threshold (above:3.5, below:3.5).
        weight : str, optional
            A column of the pool with how much each candidate counts, 0 or more; it is no feature.
        """
        task = check_model(strategy, seed, task, ensemble)  # before a large pool is read
        goal = check_goal(goal, task)
        author = check_name("the author", author or default_author())
        sheet = tables.read(pool, "the pool" if isinstance(pool, pd.DataFrame) else None)
        id = id if id is not None else "id"
        settings = settings_for(sheet, target, batch, strategy, seed, id, ignore, task, ensemble, goal, weight)
        pieces = candidates.cut(sheet, id, settings["columns"])
        return cls(create_store(check_address(url), settings, pieces, author), author)

    @classmethod
    def open(cls, url: str | Path, author: str | None = None) -> "Campaign":
        """An existing campaign, as any process left it."""
        return cls(open_store(check_address(url)), author)

    def close(self) -> None:
        """Let go of the file or the connection."""
        self.store.close()

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def settings(self) -> dict[str, Any]:
        return self.store.settings

    @property
    def n(self) -> int:
        return int(self.settings["candidates"])

    @property
    def task(self) -> str:
        return task_of(self.settings)

    @property
    def strategy(self) -> "Strategy":
        return strategy_of(self.settings)

    # Asking

    def ask(
        self, n: int, request: str | None = None, goal: str | None = None, weight: str | None = None
    ) -> pd.DataFrame:
        """The next `n` points: id, features, replicate, reason and its numbers. They are pending from now on.

        The same `request` again gives the same batch: nothing is asked twice when a connection or a laptop died. `goal`
        and `weight` are for this batch; those of the campaign where they are not given.
        """
        n = check_size(n)
        goal = check_goal(self.settings.get("goal", "map") if goal is None else goal, self.task)
        weight = self.settings.get("weight") if weight is None else weight
        with self.store.reading() as session:
            if (known := handout.answered(session, self.settings, request, n)) is not None:
                return known
            moment = Moment.read(session)
        check_room(moment, n, self.n)
        model = None if self.models.missing(moment) else self.models.at(moment)
        rows = self._choose(moment, model, n, goal, weight)
        with self.store.writing() as session:
            if (known := handout.answered(session, self.settings, request, n)) is not None:
                return known
            if session.number(schema.asks.c.id) != moment.last_ask:
                # Another station asked meanwhile: choose again, with its points pending, while nobody else can.
                moment = Moment.read(session)
                rows = self._choose(moment, model, n, goal, weight)
            basis = moment.basis if model is None else model.basis
            ask = session.add_ask(rows, request, moment.round, basis, self.settings["strategy"], self.author)
            return handout.batch(session, self.settings, ask)

    def pending(self) -> pd.DataFrame:
        """The points that were asked for and neither told nor abandoned yet, as `ask` handed them out."""
        with self.store.reading() as session:
            return handout.batch(session, self.settings, None, PENDING)

    def last_batch(self) -> tuple[pd.DataFrame | None, list[str], int | None]:
        """The last batch that was asked for, the state of each of its points, and its round; None before the first."""
        with self.store.reading() as session:
            return handout.last(session, self.settings)

    def moment(self) -> Moment:
        """All that the next batch depends on, as it is now."""
        with self.store.reading() as session:
            return Moment.read(session)

    def _choose(
        self, moment: Moment, model: "Model | None", n: int, goal: str, weight: str | None
    ) -> list[tuple[int, int, str, str]]:
        from aicau.campaign.choice import choose

        check_room(moment, n, self.n)
        picks = choose(self.models, moment, model, self.strategy, self.task, self.settings["seed"], n, goal, weight)
        return [(p.candidate, p.replicate, p.reason, json.dumps(p.numbers, sort_keys=True)) for p in picks]

    # Telling

    def tell(self, table: Any, correct: bool = False) -> dict[str, Any]:
        """What came out: all rows of the table, or none of them. Rows that are known already are not stored again.

        Parameters
        ----------
        table : str, Path or DataFrame
            Columns: the id, the target, the batch where the campaign has one; and where wanted `status` (ok, failed),
            `sem` and `count` (the target is then a mean) and `replicate`.
        correct : bool
            Replace what was told before for the same id and batch (and replicate, where given); the old rows stay,
            marked as superseded.

        Returns
        -------
        dict
            Counts: `rows`, `new`, `known`, `completed`, `failed`, `unrequested`, `superseded`, `pending`; `already` if
            nothing was new; `warnings` about names that look alike.
        """
        check_other(table, self.store.engine.url.database)
        sheet = tables.read(table)
        with self.store.reading() as session:
            ids = candidates.all_ids(session.ids())
        settings = self.settings
        own = {column["name"] for column in settings["columns"]}
        rows = results.parse(sheet, settings["id"], settings["target"], settings["batch"], ids, self.task, own)
        source = Path(table).name if isinstance(table, str | Path) else None
        digest = results.digest(rows, correct)
        with self.store.writing() as session:
            try:
                return asdict(session.add_tell(rows, digest, correct, self.author, source))
            except InputError as error:  # about a row
                raise InputError(f"{sheet.name}, {error}") from error

    def abandon(self, ids: Iterable[str] | str) -> int:
        """Pending points that will not be measured: they are not proposed again. Returns how many there were."""
        several = isinstance(ids, Iterable) and not isinstance(ids, str)
        names = [str(name).encode(errors="replace").decode() for name in (ids if several else [ids])]
        if not names:
            raise InputError("name at least one id to abandon")
        sheet = tables.read(pd.DataFrame({"id": names}), "the list")
        with self.store.reading() as session:
            index = results.find(sheet, "id", candidates.all_ids(session.ids()))
        with self.store.writing() as session:
            return session.abandon(dict(zip(index, names, strict=True)), self.author)

    def predictions(self) -> Iterator[pa.Table]:
        """`predict` as a stream of Arrow tables, each computed when it is wanted."""
        model = self.models.current()
        with self.store.reading() as session:
            parts = session.ids()
        return handout.predictions(model, parts, self.settings["id"])

    def predict(self, path: str | Path | None = None, force: bool = False) -> pd.DataFrame | None:
        """The debiased mean of every candidate, 95% intervals of the truth and of a new measurement, and the parts of
        the expected squared error of a network: epistemic, bias, aleatoric.

        For classification the most probable label, the calibrated probability of each, and the parts of the expected
        log loss; for counts the interval holds whole numbers, and the parts are of the expected Poisson divergence.
        With a path the table is streamed into that CSV or Parquet file instead; `force` replaces an existing one.
        """
        if path is None:
            return pa.concat_tables(self.predictions()).to_pandas()
        check_new(named(path), force, self.store.engine.url.database)
        stream = self.predictions()
        whole = itertools.chain([next(stream)], stream)  # what cannot be predicted is said before a file is begun
        write_whole(Path(path), lambda partial: tables.write(whole, partial), force)
        return None

    def status(self) -> dict[str, Any]:
        """Counts and settings, as plain JSON."""
        with self.store.reading() as session:
            return handout.status(session, self.settings)

    def doctor(self) -> list[Check]:
        """Everything that must hold, looked at once more; nothing is changed."""
        return examine(self.store)

    def compact(self) -> dict[str, int]:
        """Drop the kept models that no batch needs any more, and give the room back. Nothing that was asked or told
        changes; a report then has held-out errors of the last rounds only.

        Returns how many models were dropped, and their size in bytes.
        """
        dropped, freed = self.store.compact(1 + self.strategy.difference, self.author)
        return {"dropped": dropped, "bytes": freed}

    def export(self, folder: str | Path, force: bool = False) -> list[Path]:
        """The whole campaign as plain files: tables as CSV, settings as JSON, models as safetensors.

        Files of an earlier export are replaced; others of the same names only with `force`.
        """
        from aicau.campaign.export import export

        return export(self.store, named(folder), force)

    def report(self, path: str | Path, force: bool = False) -> Path:
        """One HTML file that needs no network: how good the model is, what is noise, what comes next and why.

        It replaces an earlier report, and another file only with `force`.
        """
        from aicau.report.gather import gather
        from aicau.report.page import render

        force = force or is_report(named(path))
        check_new(named(path), force, self.store.engine.url.database)
        text = render(gather(self))
        return write_whole(Path(path), lambda partial: partial.write_text(text, encoding="utf-8"), force)
