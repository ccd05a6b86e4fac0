"""A laboratory's campaign: ask for a batch, measure it, tell what came out, again and again; nothing is ever lost.

Its state is a store; the models it has at hand are kept there, too. PyTorch is imported by the verbs that compute
(`ask`, `predict`, `report`): `tell` and `status` answer without it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.changing import Changing
from aicau.campaign.models import Models
from aicau.campaign.setup import (
    check_address,
    check_goal,
    check_model,
    check_name,
    check_scale,
    check_targets,
    columns_for,
    default_author,
)
from aicau.campaign.showing import Showing
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, shown, unknown
from aicau.core.files import check_other
from aicau.store import Store, create_store, open_store
from aicau.tables import candidates


class Campaign(Changing, Showing):
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
        if not isinstance(store, Store):
            raise InputError(
                f"open a campaign with Campaign.open({shown(store)}), or make one with Campaign.create({shown(store)},"
                " pool, target)"
            )
        self.store = store
        self.author = check_name("the author", author or default_author())
        self.models = Models(store)
        self._views: dict[str, Campaign] = {}

    @classmethod
    def create(
        cls,
        url: str | Path,
        pool: Any,
        target: str | Sequence[str],
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
        sheet: str | None = None,
        skip: int = 0,
        layout: int | str | Path | None = None,
        controls: Mapping[str, int | Sequence[str]] | None = None,
        edges: bool = True,
        scale: str = "linear",
        cost: str | None = None,
        target_weights: Mapping[str, float] | None = None,
        in_place: bool = False,
    ) -> "Campaign":
        """A new campaign over a table of candidates.

        Parameters
        ----------
        url : str or Path
            A file such as screen.db that does not exist yet, or postgresql://user@host/database.
        pool : str, Path or DataFrame
            The candidates: a CSV, Excel or Parquet file, or a table.
        target, batch : str
            What the columns of the results will be called; `batch` is what is measured together, a plate or a day.
            Several targets have a list of names, one model each, and batches that serve all of them (see `of`); task,
            scale and goal are those of all.
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
        sheet : str, optional
            Which sheet of an Excel file.
        skip : int
            Lines above the column names.
        layout : {96, 384} or path, optional
            The plate that every batch is laid out on, or a file with a column `well` of the wells that may be used.
        controls : mapping, optional
            References on every plate: how many wells each has, or which; {"DMSO": 8, "blank": ["A01", "H12"]}.
        edges : bool
            False leaves the outermost wells of the plate empty.
        scale : {"linear", "log"}
            "log" for a positive target whose errors are ratios: intervals stay positive.
        cost : str, optional
            The column of the pool with the cost of measuring each candidate; see `ask`.
        target_weights : mapping, optional
            How much each of several targets counts when a batch is chosen, 1 if not given: {"yield": 2}.
        in_place : bool
            Leave candidates in `pool`, a Parquet file or a folder of them; a file that changes later is refused.
        """
        task = check_model(strategy, seed, task, ensemble)  # before a large pool is read
        words: dict[str, Any] = {"strategy": strategy or "default", "seed": seed, "task": task, "ensemble": ensemble}
        words |= {"goal": check_goal(goal, task), "scale": check_scale(scale, task), "weight": weight}
        author = check_name("the author", author or default_author())
        read = tables.read_pool(pool, in_place, sheet, skip)
        id = id if id is not None else "id"
        settings = words | columns_for(read, id, target, batch, ignore, weight, cost)
        settings |= check_targets(target, target_weights, goal)
        if (made := plates.layout_for(settings, layout, controls, edges)) is not None:
            settings["layout"] = made
        pieces = candidates.kept(read, id, settings["columns"])
        return cls(create_store(check_address(url), settings, pieces, author), author)

    @classmethod
    def open(cls, url: str | Path, author: str | None = None) -> "Campaign":
        """An existing campaign, as any process left it."""
        return cls(open_store(check_address(url)), author)

    def of(self, target: str) -> "Campaign":
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
            self._views[target] = Campaign(self.store.of(target), self.author)
            self._views[target].models.pool = self.models
        return self._views[target]

    def views(self) -> "list[Campaign]":
        """One campaign for each target."""
        return [self.of(target) for target in self.targets]

    def close(self) -> None:
        """Let go of the file or the connection."""
        self.store.close()

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Asking

    def ask(
        self,
        n: int,
        request: str | None = None,
        goal: str | None = None,
        weight: str | None = None,
        replicates: int = 1,
        preview: bool = False,
        budget: float | None = None,
        layout: int | str | Path | None = None,
        controls: Mapping[str, int | Sequence[str]] | None = None,
        edges: bool = True,
        engine: Engine = HERE,
        device: str = "cpu",
    ) -> pd.DataFrame:
        """The next `n` points: id, features, replicate, reason and its numbers. They are pending from now on.

        Where the campaign has a layout, every point has a `well`, and the controls stand below the points.

        Parameters
        ----------
        n : int
            How many points.
        request : str, optional
            A name. The same name again gives the same batch: nothing is asked twice when a connection died.
        goal, weight : str, optional
            For this batch; those of the campaign where they are not given.
        replicates : int
            Wells of each point: the batch has `n * replicates` rows.
        preview : bool
            Only look: nothing is kept, no point is pending.
        budget : float, optional
            At most `n` points whose costs fit into it, by what they are worth per cost.
        layout, controls, edges
            The plate of this batch, as `create` takes it; that of the campaign where it is not given.
        engine : Engine
            Where the pass over a large pool is computed; the batch does not depend on it.
        device : {"cpu", "cuda", "auto"}
            Where the batch is computed, in this process; a GPU rounds otherwise than a processor.
        """
        from aicau.campaign.asking import ask

        plate = plates.layout_for(self.refreshed(), layout, controls, edges)
        return ask(self, n, request, goal, weight, replicates, preview, budget, plate, engine, device)

    # Telling

    def tell(
        self, table: Any, correct: bool = False, new: Sequence[str] = (), sheet: str | None = None, skip: int = 0
    ) -> dict[str, Any]:
        """What came out: all rows of the table, or none of them. Rows that are known already are not stored again.

        Parameters
        ----------
        table : str, Path or DataFrame
            Columns: the id, the target, the batch where the campaign has one; and where wanted `status` (ok, failed),
            `sem` and `count` (the target is then a mean) and `replicate`.
        correct : bool
            Replace what was told before for the same id and batch (and replicate, where given); the old rows stay,
            marked as superseded.
        new : sequence of str
            Batches or classes that are new ones, though they look like known ones (`p1` beside `P1`).
        sheet : str, optional
            Which sheet of an Excel file.
        skip : int
            Lines of an instrument above the column names.

        Returns
        -------
        dict
            Counts: `rows`, `new`, `known`, `completed`, `failed`, `unrequested`, `superseded`, `pending`; `already` if
            nothing was new; `warnings` about what may not be meant so.
        """
        from aicau.campaign.telling import tell

        check_other(table, self.store.engine.url.database)
        return tell(self, table, correct, [new] if isinstance(new, str) else list(new), sheet, skip)

    def check(
        self, table: Any, correct: bool = False, new: Sequence[str] = (), sheet: str | None = None, skip: int = 0
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        """What `tell` would do with a table, row by row; nothing is stored. Parameters are those of `tell`.

        Returns
        -------
        DataFrame, dict
            The table with the number of each `row`, its `outcome` ("new", "known already", "control", "not filled in",
            "looks wrong") and a `note`, and what `tell` would return for the rows that are right. At most 20 wrong rows
            are named; a table with more, or without a column it needs, is refused as a whole.
        """
        from aicau.campaign.telling import check

        return check(self, table, correct, [new] if isinstance(new, str) else list(new), sheet, skip)

    # Files

    @classmethod
    def import_(cls, folder: str | Path, url: str | Path, author: str | None = None) -> "Campaign":
        """The campaign that `export` wrote into a folder, in a new file or database: history, corrections, models."""
        from aicau.campaign.export import restore

        return cls(restore(Path(folder), check_address(url)), author)
