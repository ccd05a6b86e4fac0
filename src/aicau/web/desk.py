"""What the background process does: the verbs of `Campaign` that need a model, and what pages show of one."""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aicau.campaign.campaign import Campaign
from aicau.core.errors import StoreError
from aicau.report import figures
from aicau.report.gather import gather, plane
from aicau.store import Session, Store
from aicau.web.candidates import PLACE, POOL, SAID

MOST_OPEN = 4  # campaigns whose model stays loaded
PIECE = 50_000  # candidates predicted at a time


@dataclass(frozen=True)
class Looked(Store):
    """A store that is only looked at."""

    @property
    def read_only(self) -> bool:
        return True

    @contextmanager
    def writing(self, model: bool = False) -> Iterator[Session]:
        raise StoreError(f"{self.where} is only looked at here; nothing was changed")
        yield


@dataclass
class Open:
    """A campaign twice: one that changes, one that looks; they share the model."""

    changes: Campaign
    looks: Campaign
    settings: str  # as they were when it was opened

    def share(self, one: Campaign) -> None:
        for other in (self.changes, self.looks):
            other.models._x = one.models._x
            for own, view in zip(other.views(), one.views(), strict=True):
                own.models.last = view.models.last


class Desk:
    """Campaigns at hand, and the jobs on them; `say` tells the page how far a job is."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.open: OrderedDict[str, Open] = OrderedDict()

    def at(self, address: str) -> Open:
        """Opened once; anew where candidates or settings were changed."""
        fresh = Campaign.open(address)
        now = json.dumps([fresh.settings, fresh.status()["candidates"]], sort_keys=True)
        held = self.open.pop(address, None)
        if held is None or held.settings != now:
            store = fresh.store
            looked = Looked(**{name: getattr(store, name) for name in store.__dataclass_fields__})
            held = Open(fresh, Campaign(looked), now)
        self.open[address] = held
        while len(self.open) > MOST_OPEN:
            self.open.popitem(last=False)
        return held

    # Changes

    def create(self, address: str, table: str, options: dict[str, Any]) -> None:
        """A new campaign over an uploaded table."""
        self.say("reading the candidates")
        Campaign.create(address, Path(table), **options).close()

    def fit(self, address: str, author: str) -> None:
        """The model of what is measured now; kept."""
        held = self.at(address)
        campaign, campaign.author = held.changes, author
        for view in campaign.views():
            moment = view.moment()
            if not view.models.missing(moment):
                self.say(f"fitting the model to {len(moment.rows):,} measurements")
                view.outlook()
        held.share(campaign)

    def ask(self, address: str, author: str, n: int, **options: Any) -> dict[str, Any]:
        """The next batch, or a preview of it."""
        self.fit(address, author)
        campaign = self.open[address].changes
        self.say(f"choosing {n} points")
        frame = campaign.ask(n, **options)
        return {"id": campaign.settings["id"], "rows": frame.to_dict("records"), "columns": list(frame)}

    def change(self, address: str, author: str, **settings: Any) -> None:
        """Other settings from the next batch on."""
        campaign, campaign.author = self.at(address).changes, author
        campaign.change(**settings)

    # Looks

    def look(self, address: str, version: Any) -> dict[str, Any]:
        """All that the report shows, and its figures. Nothing is written, and no model is fitted."""
        held = self.at(address)
        campaign = held.looks
        views, basis = campaign.views(), campaign.moment().basis
        missing = [view.models.missing(view.moment()) for view in views]
        ready = [view for view, words in zip(views, missing, strict=True) if not words]
        found: dict[str, Any] = {"for": version, "n": campaign.n, "missing": "" if ready else missing[0]}
        found |= {"stale": False, "model": basis if ready else 0}
        for view in ready:
            if (view.models.last or (0,))[0] != basis:
                self.say("reading the model")
                found["stale"] |= view.models.kept(basis) is None
        if found["stale"]:
            return found | {"model": -1, "contents": None, "figures": {}}
        self.say("looking at all rounds")
        every, advice = [], []
        for target, view in zip(campaign.targets, views, strict=True):
            contents = gather(view)
            drawn = {name: attributes(text) for name, text in figures.draw(contents).items()}
            every.append((target, contents, drawn))
            advice.append(f"{target}: {contents.progress.advice}" if len(views) > 1 else contents.progress.advice)
        held.share(campaign)
        return found | {"contents": every[0][1], "figures": every[0][2], "every": every, "advice": advice}

    def table(self, address: str, path: str, version: Any) -> dict[str, Any]:
        """All candidates with what is predicted of them and where they lie, as an Arrow file."""
        held = self.at(address)
        campaign = held.looks
        x = campaign.models.features()
        names, shares, _, flat = plane(x, campaign.settings["columns"])
        models = []
        for target, view in zip(campaign.targets, campaign.views(), strict=True):
            moment = view.moment()
            if not view.models.missing(moment) and view.models.kept(moment.basis) is not None:
                models.append((f"{target}_" if len(campaign.targets) > 1 else "", view.models.at(moment)))
        held.share(campaign)
        writer = None
        for start in range(0, campaign.n, PIECE):
            self.say(f"predicting all candidates ({start / campaign.n:.0%})")
            index = np.arange(start, min(start + PIECE, campaign.n))
            pool = pa.Table.from_pandas(campaign.describe(index.tolist()), preserve_index=False)
            own = {f"{POOL}{name}": pool.column(name) for name in pool.column_names}
            for target, model in models:
                said = model.predict(index).columns()
                own |= {f"{SAID}{target}{name}": pa.array(values) for name, values in said.items()}
            own |= {f"{PLACE}{at}": pa.array(column) for at, column in enumerate(flat(index).T)}
            piece = pa.table(own)
            writer = writer or pa.ipc.new_file(path, piece.schema)
            writer.write_table(piece)
        if writer is not None:
            writer.close()
        return {"for": version, "path": path, "axes": names, "shares": shares}


def attributes(svg: str) -> str:
    """The same figure without style sheets inside: a strict page allows none, and attributes say the same."""
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)

    def moved(found: "re.Match[str]") -> str:
        pairs = (part.partition(":") for part in found[1].split(";") if ":" in part)
        said = {name.strip(): value.strip() for name, _, value in pairs}
        if font := said.pop("font", ""):
            said["font-size"] = next((word for word in font.split() if word.endswith("px")), "9px")
        return " ".join(f'{name}="{value}"' for name, value in said.items() if '"' not in value)

    return re.sub(r'style="([^"]*)"', moved, svg)
