"""From a request to a batch: chosen outside the lock, and chosen again where another station was faster."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd

from aicau.campaign import handout, plates
from aicau.campaign.setup import check_budget, check_goal, check_room, check_size, room
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.store import Moment, Session, schema

if TYPE_CHECKING:
    import torch

    from aicau.campaign.campaign import Campaign
    from aicau.campaign.model import Model

OVERSAMPLE = 3  # points that are ranked for each that is asked for, where a budget decides
Row = tuple[int, int, str, str]  # candidate, replicate, reason, its numbers as JSON


def ask(
    campaign: "Campaign",
    n: Any,
    request: str | None,
    goal: str | None,
    weight: str | None,
    replicates: Any,
    preview: bool,
    budget: float | None = None,
    layout: dict[str, Any] | None = None,  # of this batch only
    engine: Engine = HERE,
    device: str = "cpu",
) -> pd.DataFrame:
    """The next `n` points, each in as many wells; kept as pending unless it is a preview."""
    from aicau.core.checks import pick_device

    n, replicates = check_size(n), check_size(replicates)
    where = engine, pick_device(device)
    if not engine.here and where[1].type != "cpu":
        raise InputError("another engine computes on processors; use either --engine or --device")
    settings = campaign.settings
    plate = layout or settings.get("layout")
    plates.check_fits(plate, n * replicates)
    counts = (
        check_goal(settings.get("goal", "map") if goal is None else goal, campaign.task),
        settings.get("weight") if weight is None else weight,
    )
    while True:
        with campaign.store.reading() as session:
            if (known := handout.answered(session, settings, request, n * replicates, budget)) is not None:
                return known
            moment, *own = _moments(session)
        check_room(moment, n, campaign.n)
        views = campaign.views()
        fitted = [None if v.models.missing(o) else v.models.at(o) for v, o in zip(views, own, strict=True)]
        if len({len(model.state.x) for model in fitted if model is not None}) > 1:
            continue  # candidates were added while one model after another was fitted
        rows = _choose(campaign, moment, own, fitted, n, replicates, *counts, budget, plate, *where)
        if preview:
            with campaign.store.reading() as session:
                found = handout.frame(session, settings, [_proposal(row) for row in rows])
                return plates.control_rows(plate, settings["id"], found)
        with campaign.store.writing() as session:
            if (known := handout.answered(session, settings, request, n * replicates, budget)) is not None:
                return known
            now, *own = _moments(session)
            if now.change != moment.change:
                continue  # candidates or settings were changed meanwhile: from the beginning
            if now.last_ask != moment.last_ask:
                # Another station asked meanwhile: choose again, with its points pending, while nobody else can.
                moment = now
                rows = _choose(campaign, moment, own, fitted, n, replicates, *counts, budget, plate, *where)
            basis = next((model.basis for model in fitted if model is not None), moment.basis)
            detail = {} if layout is None else {"layout": layout}
            ask = session.add_ask(rows, request, moment.round, basis, settings["strategy"], campaign.author, **detail)
            return handout.whole(session, settings, ask)


def _moments(session: Session) -> list[Moment]:
    """Of all targets together, and of each."""
    every = Moment.read(session)
    if len(session.targets) == 1:
        return [every, every]
    return [every, *(Moment.read(replace(session, target=target)) for target in session.targets)]


def _choose(
    campaign: "Campaign",
    moment: Moment,
    own: Sequence[Moment],  # of each target
    fitted: "Sequence[Model | None]",
    n: int,
    replicates: int,
    goal: str,
    weight: str | None,
    budget: float | None,
    plate: dict[str, Any] | None,
    engine: Engine,
    device: "torch.device",
) -> list[Row]:
    from aicau.campaign.choice import Part, affordable, choose, ranked

    check_room(moment, n, campaign.n)
    pairs = zip(campaign.targets.items(), campaign.views(), own, fitted, strict=True)
    parts = [Part(*target, view.models, one, model) for target, view, one, model in pairs]
    most, costs = n, None
    if budget is not None:
        costs, budget = check_budget(campaign.models, campaign.settings, budget), budget / replicates
        if ranked(campaign.strategy, parts):
            most = min(OVERSAMPLE * n, room(moment, campaign.n))
    how = (campaign.strategy, campaign.task, campaign.settings["seed"], most, goal, weight)
    picks = choose(parts, moment.pending, moment.barred, *how, costs, budget or math.inf, engine, device)
    if budget is not None and costs is not None:
        picks = affordable(picks, costs, n, budget)
    wells: dict[int, int] = {}  # of a candidate in this batch, before this pick
    rows = []
    for pick in picks:
        extra = wells.get(pick.candidate, 0)
        for well in range(replicates):
            reason = f"well {well + 1} of {replicates}: {pick.reason}" if replicates > 1 else pick.reason
            rows.append(replace(pick, replicate=pick.replicate + extra + well, reason=reason))
        wells[pick.candidate] = extra + replicates - 1
    found = plates.placed(plate, rows, campaign.settings["seed"], moment.last_ask + 1)
    return [(row.candidate, row.replicate, row.reason, json.dumps(row.numbers, sort_keys=True)) for row in found]


def _proposal(row: Row) -> Any:
    names = [column.name for column in schema.proposals.columns if column.name not in ("ask", "position", "status")]
    return SimpleNamespace(**dict(zip(names, row, strict=True)))
