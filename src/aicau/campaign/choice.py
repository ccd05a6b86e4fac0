"""From a campaign's moment to the next batch, and why each of its points was chosen, in words and numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aicau import ensembles
from aicau.acquisition.goals import Goal
from aicau.campaign.model import Model
from aicau.campaign.models import Models
from aicau.core import streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import located
from aicau.ensembles.base import AT_ONCE
from aicau.ensembles.kernels import MLPSettings
from aicau.prediction import Prediction, outcome
from aicau.proposal import Look, first_batch, propose
from aicau.round import Round, round_keys
from aicau.store import Moment
from aicau.strategy import Choice, Strategy

Numbers = dict[str, Any]  # plain JSON


@dataclass(frozen=True)
class Pick:
    """One proposed point."""

    candidate: int
    replicate: int
    reason: str
    numbers: Numbers


def model_round(moment: Moment, task: str) -> int:
    """k of F_k, a function of the history alone: in how many earlier rounds was there a model to ask?

    A campaign that begins with an empty plate, with failed wells or with one class only has rounds before F_0.
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


@dataclass(frozen=True)
class Part:
    """What is known of one target."""

    name: str
    share: float  # how much it counts beside others
    models: Models
    moment: Moment
    model: Any  # `Model` of this moment; None where there is none yet


def choose(
    parts: Sequence[Part],  # one for each target
    pending: Sequence[int],
    barred: Sequence[int],
    strategy: Strategy,
    task: str,
    seed: int,
    m: int,
    goal: str = "map",
    weight: str | None = None,  # a column of the candidates
    cost: Tensor | None = None,  # (n,) of a measurement
    budget: float = math.inf,
    engine: Engine = HERE,
    device: torch.device | None = None,
) -> list[Pick]:
    """The next `m` points. Pending points count as measured for distances and are not proposed again.

    Several targets are served by one batch: the gain of a point is the sum of its gains for each, in units of the
    target's variance, times how much the target counts. A target that has no model yet does not count.

    A point may stand in a batch more than once where its noise makes a repeat worth more than a new point.
    """
    fitted = [part for part in parts if part.model is not None]
    lead = (fitted or parts)[0]
    x = lead.model.state.x if fitted else lead.models.features()
    n = len(x)  # others may add candidates meanwhile, behind these
    missing = "" if fitted else lead.models.missing(lead.moment)
    known: list[dict[int, list[Any]]] = [{} for _ in parts]
    for part, own in zip(parts, known, strict=True):
        for row in part.moment.rows:
            own.setdefault(row.candidate, []).append(row)
    allowed, marked = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    allowed[[*pending, *barred]] = False
    marked[[at for own in (*known, pending) for at in own]] = True
    round = model_round(lead.moment, task)
    keys = keys_of(seed, round)
    keys = streams.fold(keys, lead.moment.turn) if lead.moment.turn else keys
    said: dict[str, Prediction] = {}
    aim, counts_for = Goal.parse(goal), None if weight is None or not fitted else lead.models.weights(weight)[None, :n]
    chances = [wanted(part.model, aim) for part in fitted]
    if not fitted:
        choice, strategy = first_batch(located(x), marked, allowed, m, keys)
    else:
        looks = []
        for part, chance in zip(fitted, chances, strict=True):
            both = counts_for if chance is None else chance if counts_for is None else chance * counts_for
            earlier = part.models.earlier(part.moment) if strategy.difference else None
            last, seeks = None if earlier is None else Look(earlier.how, earlier.state), chance if aim.seeks else None
            looks.append(Look(part.model.how, part.model.state, part.share / lead.share, last, both, seeks))
        room, price = torch.where(allowed, m, 0)[None], None if cost is None else cost[None, :n]
        choice = propose(strategy, looks, m, room, marked[None], round, keys, price, budget, engine, device)
        said = {part.name: part.model.predict(choice.selection.index[0]) for part in fitted}
    counts = [Counter({at: sum(row.repeats for row in rows) for at, rows in own.items()}) for own in known]
    unit = 1.0
    if len(parts) == 1 and lead.model is not None:
        unit = float(lead.model.state.scale[0]) ** (2 if lead.model.state.task.squared else 1)
    picks = []
    for place, at in enumerate(choice.selection.index[0].tolist()):
        purpose: Numbers = {"goal": goal} if goal != "map" else {}
        words = ""
        for chance in chances[:1]:
            if chance is not None:
                purpose["chance"] = float(chance[0, at])
                words = f"; goal {goal}: the {aim.meaning} is {purpose['chance']:.2g}"
        if counts_for is not None:
            purpose["weight"] = float(counts_for[0, at])
            words += f"; it counts {purpose['weight']:g} by {weight}"
        before = [(count[at], own.get(at, [])) for count, own in zip(counts, known, strict=True)]
        pick = _pick(at, place, choice, strategy, parts, said, before, missing, unit)
        picks.append(replace(pick, reason=pick.reason + words, numbers=pick.numbers | purpose))
        for count in counts:
            count[at] += 1
    return picks


def ranked(strategy: Strategy, parts: Sequence[Part]) -> bool:
    """Whether a budget is filled by rank, because the rule that chooses does not look at costs itself."""
    return not getattr(strategy.batching, "joint", False) or all(part.model is None for part in parts)


def affordable(picks: Sequence[Pick], costs: Tensor, n: int, budget: float) -> list[Pick]:
    """At most `n` of these points, in their order, whose costs fit into the budget; others are passed over."""
    left = float(budget)
    found: list[Pick] = []
    for pick in picks:
        cost = float(costs[pick.candidate])
        if cost <= left and len(found) < n:
            left -= cost
            words = f"{pick.reason}; costs {cost:g}, {left:g} of the budget are left"
            found.append(replace(pick, reason=words, numbers=pick.numbers | {"cost": cost}))
    if not found:
        raise InputError(f"no point of the next batch costs {budget:g} or less; raise the budget")
    return found


def wanted(model: Model, goal: Goal) -> Tensor | None:  # (1, n)
    """How likely each candidate is what a goal looks for; None where all count alike."""
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


def _pick(
    at: int,
    place: int,
    choice: Choice,
    strategy: Strategy,
    parts: Sequence[Part],
    said: dict[str, Prediction],  # by target
    before: Sequence[tuple[int, Sequence[Any]]],  # of each target: measurements so far, with this batch, and their rows
    missing: str,
    unit: float,
) -> Pick:
    reason, decided = strategy.reason(choice, 0, place, unit)
    numbers: Numbers = {"rule": strategy.name}
    numbers |= {name: value if math.isfinite(value) else None for name, value in decided.items()}
    count = max(number for number, _ in before)
    measured = max(sum(row.repeats for row in rows) for _, rows in before)
    highest = max((row.replicate or 0 for _, rows in before for row in rows), default=0)  # below it, some failed
    replicate = 1 + max(count, highest + count - measured)
    if not said:
        return Pick(at, replicate, f"fills the space ({missing or 'nothing is measured yet'}): {reason}", numbers)
    reason, of = f"{strategy.name}: {reason}", {}
    for part, (number, _) in zip(parts, before, strict=True):
        if part.name in said:
            words, own = said[part.name].summary(place)
            reason += f"; {part.name}: {words}" if len(parts) > 1 else f"; {words}"
            of[part.name] = own | ({"measured_before": number} if number else {})
    numbers |= {"of": of} if len(parts) > 1 else next(iter(of.values()))
    if not count:
        return Pick(at, 1, reason, numbers)
    history = _history(before[0][1]) if measured and len(parts) == 1 else ""
    words = f", measured {measured}x before{history}" if measured else " of a point of this batch"
    return Pick(at, replicate, f"repeat{words}; {reason}", numbers)


def _history(rows: Sequence[Any]) -> str:
    """What the measurements of a candidate said."""
    labels: Counter[str] = Counter()
    for row in rows:
        if row.label is not None:
            labels[row.label] += row.repeats
    if labels:
        label, most = min(labels.items(), key=lambda one: (-one[1], one[0]))
        return f" ({most} of {labels.total()} say {label!r})"
    values = [row.value for row in rows]
    return f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else f" ({values[0]:.3g})"


def try_out(strategy: Strategy, task: str) -> None:
    """Choose from four points as a campaign with this task would, so that what cannot work is refused at its start."""
    what = outcome(task).task(("0", "1"))
    how = Round(replace(ensembles.MLP(task=what), settings=MLPSettings(max_epochs=1)), what)
    x, index = torch.eye(4), torch.tensor([[0, 1, 2]])
    rows = Observations(index, torch.tensor([[0.0, 1.0, 1.0]]).double(), torch.zeros_like(index[0]))
    try:
        state = how.fit(x, rows, streams.runs(0, 1))
        how.choose(strategy, state, how.assess(strategy, state), 1)
    except InputError as error:
        raise InputError(f"strategy {strategy.name!r} does not work for {task}: {error}") from error
