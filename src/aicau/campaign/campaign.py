"""A laboratory's campaign: ask for a batch, measure it, tell what came out, again and again; nothing is ever lost.

Its state is a store; the models it has at hand are kept there, too. PyTorch is imported by the verbs that compute
(`ask`, `predict`, `report`): `tell` and `status` answer without it.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.asking import Asking
from aicau.campaign.changing import Changing
from aicau.campaign.setup import (
    check_address,
    check_author,
    check_goal,
    check_model,
    check_scale,
    check_targets,
    columns_for,
)
from aicau.campaign.showing import Showing
from aicau.campaign.telling import Telling
from aicau.store import create_store, open_store
from aicau.tables import candidates


class Campaign(Asking, Telling, Changing, Showing):
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
    ) -> Self:
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
        words: dict[str, Any] = {"strategy": strategy or "default", "seed": int(seed), "task": task, "weight": weight}
        words |= {"goal": check_goal(goal, task), "scale": check_scale(scale, task), "ensemble": ensemble}
        author = check_author(author)
        read = tables.read_pool(pool, in_place, sheet, skip)
        id = id if id is not None else "id"
        targets = [target] if isinstance(target, str) or not isinstance(target, Collection) else list(target)
        settings = words | columns_for(read, id, targets, batch, ignore, weight, cost)
        settings |= check_targets(targets, target_weights, goal)
        ids = partial(candidates.distinct_ids, read, id)
        if (made := plates.layout_for(settings, layout, controls, edges, ids)) is not None:
            settings["layout"] = made
        pieces = candidates.kept(read, id, settings["columns"])
        return cls(create_store(check_address(url), settings, pieces, author), author)

    @classmethod
    def open(cls, url: str | Path, author: str | None = None) -> Self:
        """An existing campaign, as any process left it."""
        return cls(open_store(check_address(url)), author)

    @classmethod
    def import_(cls, folder: str | Path, url: str | Path, author: str | None = None) -> Self:
        """The campaign that `export` wrote into a folder, in a new file or database: history, corrections, models."""
        from aicau.campaign.export import restore

        return cls(restore(Path(folder), check_address(url)), author)
