"""From a request to a batch: chosen outside the lock, and chosen again where another station was faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from aicau.campaign import handout, plates
from aicau.campaign import layout as wells
from aicau.campaign.looking import Looking
from aicau.campaign.models import Models
from aicau.campaign.setup import check_goal, check_room, check_size
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.store import Moment, Session

if TYPE_CHECKING:
    import torch

MOST_WELLS = 1000  # of a point: each is a row


@dataclass(frozen=True)
class Request:
    """What is asked for; where nothing was said, what the campaign says."""

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
    """What is known of one target."""

    name: str
    share: float  # how much it counts beside others
    models: Models
    moment: Moment
    model: Any  # `Model` of this moment; None where there is none yet


class Row(NamedTuple):
    """One proposed well."""

    candidate: int
    replicate: int
    why: str
    numbers: str  # JSON


class Asking(Looking):
    """The verb that proposes a batch."""

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
        words = f"every point has from 1 to {MOST_WELLS:,} wells, a whole number"
        n, replicates, where = check_size(n), check_size(replicates, words, MOST_WELLS), pick_device(device)
        goal = None if goal is None else check_goal(goal, self.task)
        if not engine.here and where.type != "cpu":
            raise InputError("another engine computes on processors; use either --engine or --device")
        while True:
            with self.store.reading() as session:
                if (known := handout.answered(session, settings, request, n * replicates, budget)) is not None:
                    return known
                moment, parts = self._moments(session)
            asked = Request(
                n=n,
                replicates=replicates,
                goal=settings.get("goal", "map") if goal is None else goal,
                weight=settings.get("weight") if weight is None else weight,
                budget=budget,
                layout=own_layout or settings.get("layout"),
                engine=engine,
                device=where,
            )
            wells.check_fits(asked.layout, n * replicates)
            check_room(moment, n, self.n)
            parts = [replace(p, model=None if p.models.missing(p.moment) else p.models.at(p.moment)) for p in parts]
            fitted = [part.model for part in parts if part.model is not None]
            if len({len(model.state.x) for model in fitted}) > 1:
                continue  # candidates were added while one model after another was fitted
            rows = choice.choose(self, asked, moment, parts)
            if preview:
                with self.store.reading() as session:
                    found = handout.frame(session, settings, rows)
                return plates.control_rows(asked.layout, settings["id"], found)
            with self.store.writing() as session:
                if (known := handout.answered(session, settings, request, n * replicates, budget)) is not None:
                    return known
                now, new = self._moments(session)
                if now.change != moment.change:
                    continue  # candidates or settings were changed meanwhile: from the beginning
                if now.last_ask != moment.last_ask:
                    # Another station asked meanwhile: choose again, with its points pending, while nobody else can.
                    moment = now
                    check_room(moment, n, self.n)
                    parts = [replace(part, model=old.model) for part, old in zip(new, parts, strict=True)]
                    rows = choice.choose(self, asked, moment, parts)
                basis = fitted[0].basis if fitted else moment.basis
                detail = {} if own_layout is None else {"layout": own_layout}
                ask = session.add_ask(rows, request, moment.round, basis, settings["strategy"], self.author, **detail)
                return handout.whole(session, settings, ask)

    def _moments(self, session: Session) -> tuple[Moment, list[Part]]:
        """Of all targets together, and of each."""
        every = Moment.read(session)
        parts = []
        for (name, share), view in zip(self.targets.items(), self.views(), strict=True):
            own = every if len(self.targets) == 1 else Moment.read(replace(session, target=name))
            parts.append(Part(name, share, view.models, own, None))
        return every, parts
