"""The next batch of a campaign, with the reason for each point in words and numbers."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from aicau import ensembles
from aicau.acquisition.goals import Goal
from aicau.campaign import layout
from aicau.campaign.campaign import Campaign, Part, Pick, Request
from aicau.campaign.model import Model
from aicau.campaign.setup import parse_strategy, room
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import coordinates
from aicau.ensembles.base import AT_ONCE
from aicau.ensembles.kernels import MLPSettings
from aicau.prediction import Prediction, outcome
from aicau.proposal import Look, first_batch, propose
from aicau.round import Round, round_keys
from aicau.store import Moment

Numbers = dict[str, Any]  # plain JSON
OVERSAMPLE = 3  # points that are ranked for each point of a batch with a budget


def model_round(moment: Moment, task: str) -> int:
    """k of F_k: the number of earlier rounds that had a model. It depends on the history alone.

    A campaign that begins with an empty plate, failed wells or one class has rounds before F_0.
    """
    labels: set[str | None] = set()
    for row in moment.history:
        labels.add(row.label)
        if not outcome(task).too_few(sorted(label for label in labels if label is not None)):
            return len({round for round, basis in moment.asked if basis >= row.tell})
    return 0


def keys_of(seed: int, round: int) -> Tensor:  # (1,)
    """The random stream of the round of F_k."""
    return round_keys(streams.runs(seed, 1), round)


def choose(campaign: Campaign, asked: Request, moment: Moment, parts: Sequence[Part]) -> list[Pick]:
    """The wells of the next batch: its points within the budget, each with its replicates and its wells."""
    costs, budget, most = None, math.inf, asked.n
    if asked.budget is not None:
        if "cost" not in campaign.settings:
            raise InputError("a budget needs costs; name their column when the campaign is made, such as --cost price")
        if not (isinstance(asked.budget, int | float) and math.isfinite(asked.budget) and asked.budget > 0):
            raise InputError(f"a budget is a number above 0; got {asked.budget!r}")
        costs, budget = campaign.models.weights(campaign.settings["cost"]), asked.budget / asked.replicates
        if not campaign.strategy.joint or all(part.model is None for part in parts):
            # This rule does not look at costs: it ranks more points than wanted, and the affordable ones are taken.
            most = min(OVERSAMPLE * asked.n, room(moment, campaign.n))
    picks = _picks(campaign, asked, moment, parts, most, costs, budget)
    if costs is not None:
        picks = _affordable(picks, costs, asked.n, budget)
    wells: Counter[int] = Counter()  # additional wells of a candidate in this batch, before this pick
    found = []
    for pick in picks:
        for well in range(asked.replicates):
            why = f"well {well + 1} of {asked.replicates}: {pick.why}" if asked.replicates > 1 else pick.why
            found.append(pick._replace(replicate=pick.replicate + wells[pick.candidate] + well, why=why))
        wells[pick.candidate] += asked.replicates - 1
    if asked.layout:
        seed = campaign.settings["seed"], moment.last_ask + 1
        where = layout.assign(asked.layout, [pick.candidate for pick in found], seed)
        found = [pick._replace(numbers=pick.numbers | {"well": at}) for pick, at in zip(found, where, strict=True)]
    return [pick._replace(numbers=json.dumps(pick.numbers, sort_keys=True)) for pick in found]


def _picks(
    campaign: Campaign,
    asked: Request,
    moment: Moment,
    parts: Sequence[Part],  # one for each target
    m: int,
    costs: Tensor | None,  # (n,) of a measurement
    budget: float,
) -> list[Pick]:
    """The next `m` points. Pending points count as measured for distances and are not proposed again.

    Several targets share one batch: the gain of a point is the sum of its gains for each target, in units of the
    target's variance, times the target's weight. A target without a model does not count.

    A point may stand in a batch more than once where its noise makes a repeat worth more than a new point.
    """
    strategy = campaign.strategy
    fitted = [part for part in parts if part.model is not None]
    lead = (fitted or parts)[0]
    x = lead.model.state.x if fitted else lead.models.features()
    n = len(x)  # others may add candidates meanwhile, behind these
    known = [defaultdict[int, list[Any]](list) for _ in parts]  # measurements of each target, by candidate
    for part, own in zip(parts, known, strict=True):
        for row in part.moment.rows:
            own[row.candidate].append(row)
    allowed, marked = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    allowed[[*moment.pending, *moment.barred]] = False
    marked[[at for own in (*known, moment.pending) for at in own]] = True
    round = model_round(lead.moment, campaign.task)
    keys = keys_of(campaign.settings["seed"], round)
    keys = streams.fold(keys, lead.moment.turn) if lead.moment.turn else keys
    weight = None if asked.weight is None else lead.models.weights(asked.weight)[None, :n]
    aim = Goal.parse(asked.goal)
    chances = [wanted(part.model, aim) for part in fitted]
    said: dict[str, Prediction] = {}
    if not fitted:  # all candidates have the same weight
        choice, strategy = first_batch(coordinates(x), marked, allowed, m, keys)
    else:
        looks = []
        for part, chance in zip(fitted, chances, strict=True):
            earlier = part.models.earlier(part.moment) if strategy.difference else None
            last = None if earlier is None else Look(earlier.how, earlier.state)
            both = weight if chance is None else chance if weight is None else chance * weight
            share, seeks = part.share / lead.share, chance if aim.seeks else None
            looks.append(Look(part.model.how, part.model.state, share, last, both, seeks))
        free, price = torch.where(allowed, m, 0)[None], None if costs is None else costs[None, :n]
        how = (marked[None], round, keys, price, budget, asked.engine, asked.device)
        choice = propose(strategy, looks, m, free, *how)
        said = {part.name: part.model.predict(choice.selection.index[0]) for part in fitted}
    state = lead.model.state if len(parts) == 1 and fitted else None
    unit = 1.0 if state is None else float(state.scale[0]) ** (2 if state.task.squared else 1)
    picks = []
    again: Counter[int] = Counter()  # how often a point is in this batch already
    for place, at in enumerate(choice.selection.index[0].tolist()):
        words, decided = strategy.reason(choice, 0, place, unit)
        numbers: Numbers = {"rule": strategy.name}
        numbers |= {name: value if math.isfinite(value) else None for name, value in decided.items()}
        rows = [own[at] for own in known]
        if fitted:
            words, predicted = _beside(f"{strategy.name}: {words}", place, parts, said, rows, again[at])
            numbers |= predicted
        else:
            words = f"fills the space ({lead.models.missing(lead.moment) or 'nothing is measured yet'}): {words}"
        numbers |= {"goal": asked.goal} if asked.goal != "map" else {}
        if chances and chances[0] is not None:
            numbers["chance"] = float(chances[0][0, at])
            words += f"; goal {asked.goal}: the {aim.meaning} is {numbers['chance']:.2g}"
        if fitted and weight is not None:
            numbers["weight"] = float(weight[0, at])
            words += f"; its weight by {asked.weight} is {numbers['weight']:g}"
        # Where a well failed, replicates have larger numbers than were measured.
        taken = max(0, *map(_count, rows), *(row.replicate or 0 for own in rows for row in own))
        again[at] += 1
        picks.append(Pick(at, taken + again[at], words, numbers))
    return picks


def _beside(
    reason: str,
    place: int,
    parts: Sequence[Part],
    said: dict[str, Prediction],  # by target
    rows: Sequence[Sequence[Any]],  # measurements of the point, of each target
    again: int,  # how often it is in this batch already
) -> tuple[str, Numbers]:
    """The rule's reason for a point, with its prediction and how often it was measured before."""
    of: dict[str, Numbers] = {}
    for part, own in zip(parts, rows, strict=True):
        if part.name in said:
            words, numbers = said[part.name].summary(place)
            reason += f"; {part.name}: {words}" if len(parts) > 1 else f"; {words}"
            before = _count(own) + again
            of[part.name] = numbers | ({"measured_before": before} if before else {})
    if measured := max(map(_count, rows)):
        history = _history(rows[0]) if len(parts) == 1 else ""
        reason = f"repeat, measured {measured}x before{history}; {reason}"
    elif again:
        reason = f"repeat of a point of this batch; {reason}"
    return reason, {"of": of} if len(parts) > 1 else next(iter(of.values()))


def _count(rows: Sequence[Any]) -> int:
    return sum(row.repeats for row in rows)


def _affordable(picks: Sequence[Pick], costs: Tensor, n: int, budget: float) -> list[Pick]:
    """At most `n` of these points, in their order, whose costs fit into the budget."""
    left = float(budget)
    found: list[Pick] = []
    for pick in picks:
        cost = float(costs[pick.candidate])
        if cost <= left and len(found) < n:
            left -= cost
            words = f"{pick.why}; costs {cost:g}, {left:g} of the budget are left"
            found.append(pick._replace(why=words, numbers=pick.numbers | {"cost": cost}))
    if not found:
        raise InputError(f"no point of the next batch costs {budget:g} or less; raise the budget")
    return found


def wanted(model: Model, goal: Goal) -> Tensor | None:  # (1, n)
    """The probability that each candidate meets the goal; None where the goal is all candidates."""
    if goal.name == "map":
        return None
    if model.log and goal.threshold is not None:
        goal = replace(goal, threshold=math.log(max(goal.threshold, 1e-300)))
    own = (model.predict(index) for index in torch.arange(len(model.state.x)).split(AT_ONCE))
    parts: list[Any] = [getattr(part, "inner", part) for part in own]  # on a log scale, of ln y
    mean = torch.cat([torch.as_tensor(part.mean) for part in parts])
    if model.state.task.squared:
        unknown = torch.cat([part.unknown for part in parts])
    else:  # a new count varies by its own mean, too
        unknown = torch.cat([torch.as_tensor(part.variance) for part in parts]) - mean
    found = goal.weights(mean, unknown)
    return None if found is None else found[None]


def _history(rows: Sequence[Any]) -> str:
    labels = Counter(row.label for row in rows for _ in range(row.repeats) if row.label is not None)
    if labels:
        label, most = min(labels.items(), key=lambda one: (-one[1], one[0]))
        return f" ({most} of {labels.total()} say {label!r})"
    values = [row.value for row in rows]
    return f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else f" ({values[0]:.3g})"


@lru_cache(maxsize=64)
def try_out(text: str, task: str) -> None:
    """Choose from four points, so that a strategy that does not work for the task is refused at the start."""
    strategy, what = parse_strategy(text, task), outcome(task).task(("0", "1"))
    how = Round(replace(ensembles.MLP(task=what), settings=MLPSettings(max_epochs=1)), what)
    x, index = torch.eye(4), torch.tensor([[0, 1, 2]])
    rows = Observations(index, torch.tensor([[0.0, 1.0, 1.0]]).double(), torch.zeros_like(index[0]))
    try:
        state = how.fit(x, rows, streams.runs(0, 1))
        how.choose(strategy, state, how.estimate(strategy.bias, state), 1)
    except InputError as error:
        raise InputError(f"strategy {strategy.name!r} does not work for {task}: {error}") from error
