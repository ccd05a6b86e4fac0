"""What the background process does: the verbs of `Campaign` that need a model, and what pages show of one."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

from aicau.campaign.campaign import Campaign
from aicau.campaign.model import Model
from aicau.report import figures
from aicau.report.gather import gather, plane
from aicau.store import Store
from aicau.web.candidates import PLACE, POOL, SAID

MOST_OPEN = 4  # campaigns whose model stays loaded
PIECE = 50_000  # candidates predicted at a time


@dataclass(frozen=True)
class Shared(Store):
    """A store that pages look at, too: what is fitted while they look is not kept."""

    looking: Event = field(default_factory=Event, repr=False)

    @property
    def read_only(self) -> bool:
        return self.looking.is_set() or super().read_only


class Desk:
    """Campaigns at hand, and the jobs on them; `say` tells the page how far a job is."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.looking = say, Event()
        self.open: OrderedDict[str, tuple[Campaign, dict[str, Any]]] = OrderedDict()  # with the settings it began with

    def at(self, address: str, author: str | None = None) -> Campaign:
        """Opened once; anew where candidates or settings were changed."""
        campaign, settings = self.open.pop(address, (None, None))
        if campaign is None or campaign.refreshed() != settings:
            campaign = Campaign(Shared(**vars(Campaign.open(address).store), looking=self.looking))
            settings = dict(campaign.refreshed())
        self.open[address] = campaign, settings
        if len(self.open) > MOST_OPEN:
            self.open.popitem(last=False)
        campaign.author = author or campaign.author
        return campaign

    # Changes

    def create(self, address: str, table: str, options: dict[str, Any]) -> None:
        """A new campaign over an uploaded table."""
        self.say("reading the candidates")
        Campaign.create(address, Path(table), **options).close()

    def fit(self, address: str, author: str) -> None:
        """The model of what is measured now; kept."""
        for view in self.at(address, author).views():
            moment = view.moment()
            if not view.models.missing(moment):
                self.say(f"fitting the model to {len(moment.rows):,} measurements")
                view.outlook()

    def ask(self, address: str, author: str, n: int, **options: Any) -> dict[str, Any]:
        """The next batch, or a preview of it."""
        self.fit(address, author)
        campaign, _ = self.open[address]
        self.say(f"choosing {n} points")
        frame = campaign.ask(n, **options)
        return {"rows": frame.to_dict("records"), "layout": campaign.settings.get("layout")}

    def change(self, address: str, author: str, **settings: Any) -> None:
        """Other settings from the next batch on."""
        self.at(address, author).change(**settings)

    # Looks

    def model(self, view: Campaign) -> Model | None:
        """The model of what is measured now, from now on at hand; None where none is kept."""
        models, moment = view.models, view.moment()
        if models.last is None or models.last[0] != moment.measured:
            if (kept := models.kept(moment.basis)) is None:
                return None
            models.last = moment.measured, kept
        return models.last[1]

    def look(self, address: str, version: Any) -> dict[str, Any]:
        """All that the report shows, and its figures. Nothing is written, and no model is fitted."""
        campaign = self.at(address)
        views, basis = campaign.views(), campaign.moment().basis
        missing = [view.models.missing(view.moment()) for view in views]
        ready = [view for view, words in zip(views, missing, strict=True) if not words]
        found = {"for": version, "n": campaign.n, "missing": "" if ready else missing[0]}
        self.say("reading the model")
        if any(self.model(view) is None for view in ready):
            return found | {"stale": True, "model": -1, "every": []}
        self.say("looking at all rounds")
        self.looking.set()
        try:
            every = [(target, gather(view)) for target, view in zip(campaign.targets, views, strict=True)]
        finally:
            self.looking.clear()
        drawn = [(target, contents, figures.draw(contents)) for target, contents in every]
        return found | {"stale": False, "model": basis if ready else 0, "every": drawn}

    def table(self, address: str, path: str, version: Any) -> dict[str, Any]:
        """All candidates with what is predicted of them and where they lie, as an Arrow file."""
        campaign = self.at(address)
        names, _, _, flat = plane(campaign.models.features(), campaign.settings["columns"])
        models = {
            f"{target}_" if len(campaign.targets) > 1 else "": model
            for target, view in zip(campaign.targets, campaign.views(), strict=True)
            if (model := self.model(view)) is not None
        }
        writer: Any = None
        for start in range(0, campaign.n, PIECE):
            self.say(f"predicting all candidates ({start / campaign.n:.0%})")
            index = np.arange(start, min(start + PIECE, campaign.n))
            pool = pa.Table.from_pandas(campaign.describe(index.tolist()), preserve_index=False)
            own = {f"{POOL}{name}": pool.column(name) for name in pool.column_names}
            for target, model in models.items():
                said = model.predict(index).columns()
                own |= {f"{SAID}{target}{name}": pa.array(values) for name, values in said.items()}
            own |= {f"{PLACE}{at}": pa.array(column) for at, column in enumerate(flat(index).T)}
            piece = pa.table(own)
            writer = writer or pa.ipc.new_file(path, piece.schema)
            writer.write_table(piece)
        writer.close()
        return {"for": version, "path": path, "axes": names}
