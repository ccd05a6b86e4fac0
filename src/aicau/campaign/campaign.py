"""A laboratory's campaign: ask for a batch, measure it, tell the results, again and again.

Its state and its models are in a store. Only the verbs that compute (`ask`, `predict`, `report`) import PyTorch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pandas as pd

from aicau import tables
from aicau.campaign import layout as wells
from aicau.campaign import plates, setup
from aicau.campaign.changing import Changing
from aicau.campaign.looking import handed_out
from aicau.campaign.models import Models
from aicau.campaign.showing import Showing
from aicau.campaign.telling import Telling
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, shown
from aicau.store import Moment, Session, create_store, open_store
from aicau.tables import candidates

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Request:
    """The arguments of `ask`, filled in from the settings of the campaign."""

    n: int
    replicates: int
    goal: str
    weight: str | None  # a column of the candidates
    budget: float | None
    layout: dict[str, Any] | None
    engine: Engine
    device: "torch.device"


@dataclass(frozen=True)
class Part:
    """One target of the campaign."""

    name: str
    share: float  # its weight beside the other targets
    models: Models
    moment: Moment
    model: Any = None  # `Model` of this moment; None where none can be fitted yet


class Pick(NamedTuple):
    """One proposed point or well."""

    candidate: int
    replicate: int
    why: str
    numbers: Any  # plain JSON, and its text in the end


class Campaign(Telling, Changing, Showing):
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
        setup.check_model(strategy, seed, task, ensemble)  # before a large pool is read
        settings: dict[str, Any] = {"strategy": strategy or "default", "seed": int(seed), "task": task}
        settings |= {"goal": setup.check_goal(goal, task), "scale": setup.check_scale(scale, task)}
        settings |= {"ensemble": ensemble, "weight": weight}
        author = setup.check_author(author)
        read = tables.read_pool(pool, in_place, sheet, skip)
        id = id if id is not None else "id"
        targets = [target] if isinstance(target, str) or not isinstance(target, Collection) else list(target)
        settings |= setup.columns_for(read, id, targets, batch, ignore, weight, cost)
        settings |= setup.check_targets(targets, target_weights, goal)
        ids = partial(candidates.distinct_ids, read, id)
        if (made := plates.layout_for(settings, layout, controls, edges, ids)) is not None:
            settings["layout"] = made
        pieces = candidates.kept(read, id, settings["columns"])
        return cls(create_store(url, settings, pieces, author), author)

    @classmethod
    def open(cls, url: str | Path, author: str | None = None) -> Self:
        """An existing campaign, as any process left it."""
        return cls(open_store(url), author)

    @classmethod
    def import_(cls, folder: str | Path, url: str | Path, author: str | None = None) -> Self:
        """The campaign that `export` wrote into a folder, in a new file or database: history, corrections, models."""
        from aicau.campaign.export import restore

        return cls(restore(Path(folder), url), author)

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
        from aicau.campaign import choice
        from aicau.core.checks import pick_device

        own_layout = plates.layout_for(self.refreshed(), layout, controls, edges, self._ids)
        settings = self.settings
        words = f"every point has from 1 to {setup.MOST_WELLS:,} wells, a whole number"
        n, replicates = setup.check_size(n), setup.check_size(replicates, words, setup.MOST_WELLS)
        where = pick_device(device)
        goal = None if goal is None else setup.check_goal(goal, self.task)
        if not engine.here and where.type != "cpu":
            raise InputError("another engine computes on processors; use either --engine or --device")
        while True:
            with self.store.reading() as session:
                if (known := _answered(session, request, n * replicates, budget)) is not None:
                    return known
                moment, parts = self._moments(session)
            aims = goal or settings.get("goal", "map"), settings.get("weight") if weight is None else weight
            asked = Request(n, replicates, *aims, budget, own_layout or settings.get("layout"), engine, where)
            wells.check_fits(asked.layout, n * replicates)
            setup.check_room(moment, n, self.n)
            parts = [replace(p, model=None if p.models.missing(p.moment) else p.models.at(p.moment)) for p in parts]
            fitted = [part.model for part in parts if part.model is not None]
            if len({len(model.state.x) for model in fitted}) > 1:
                continue  # candidates were added while one model after another was fitted
            rows = choice.choose(self, asked, moment, parts)
            if preview:
                with self.store.reading() as session:
                    return plates.control_rows(asked.layout, settings["id"], handed_out(session, rows))
            with self.store.writing() as session:
                if (known := _answered(session, request, n * replicates, budget)) is not None:
                    return known
                now, new = self._moments(session)
                if now.change != moment.change:
                    continue  # candidates or settings were changed meanwhile: from the beginning
                if now.last_ask != moment.last_ask:
                    # Another station asked meanwhile: choose again, with its points pending, while nobody else can.
                    moment = now
                    setup.check_room(moment, n, self.n)
                    parts = [replace(part, model=old.model) for part, old in zip(new, parts, strict=True)]
                    rows = choice.choose(self, asked, moment, parts)
                basis = fitted[0].basis if fitted else moment.basis
                detail = {} if own_layout is None else {"layout": own_layout}
                ask = session.add_ask(rows, request, moment.round, basis, settings["strategy"], self.author, **detail)
                return _whole(session, ask)

    def _moments(self, session: Session) -> tuple[Moment, list[Part]]:
        """The moment of all targets together, and every target with its own."""
        every = Moment.read(session)
        own = [every] if len(self.targets) == 1 else [Moment.read(session.of(name)) for name in self.targets]
        models = [view.models for view in self.views()]
        return every, list(map(Part, self.targets, self.targets.values(), models, own))


def _answered(session: Session, request: str | None, n: int, budget: float | None) -> pd.DataFrame | None:
    """The batch that this request was answered with; None where it is new."""
    if request is None or (row := session.ask_of(setup.check_name("a request", request))) is None:
        return None
    if row.size != n and budget is None:
        raise InputError(f"request {shown(request)} was answered with {row.size} points; now {shown(n)} are asked for")
    return _whole(session, row.id)


def _whole(session: Session, ask: int) -> pd.DataFrame:
    """One batch, with the controls of its plate below the points."""
    points = handed_out(session, session.proposals(ask))
    return plates.control_rows(plates.layouts(session).get(ask), session.settings["id"], points)
