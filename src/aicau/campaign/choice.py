"""From a campaign's moment to the next batch, and why each of its points was chosen, in words and numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aicau import ensembles
from aicau.acquisition import View
from aicau.acquisition.goals import Goal
from aicau.campaign.model import Model
from aicau.campaign.models import Models
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import coordinates
from aicau.ensembles.kernels import MLPSettings
from aicau.prediction import Prediction, outcome
from aicau.round import AT_ONCE, Past, Round, first_batch, round_keys
from aicau.store import Moment
from aicau.strategy import Choice, Strategy

if TYPE_CHECKING:
    import pandas as pd

Numbers = dict[str, float | int | str | None]


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


def choose(
    models: Models,
    moment: Moment,
    model: Model | None,  # of this moment, where there is one
    strategy: Strategy,
    task: str,
    seed: int,
    m: int,
    goal: str = "map",
    weight: str | None = None,  # a column of the candidates
) -> list[Pick]:
    """The next `m` points. Pending points count as measured for distances and are not proposed again.

    A point may stand in a batch more than once where its noise makes a repeat worth more than a new point.
    """
    x = models.features()
    n = len(x)
    missing = models.missing(moment) if model is None else ""
    earlier = models.earlier(moment) if model is not None and strategy.difference else None
    known: dict[int, list[Any]] = {}
    for row in moment.rows:
        known.setdefault(row.candidate, []).append(row)
    allowed, marked = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    allowed[moment.pending + moment.barred] = False
    marked[[*known, *moment.pending]] = True
    round = model_round(moment, task)
    keys = keys_of(seed, round)
    keys = streams.fold(keys, moment.turn) if moment.turn else keys
    said: Prediction | None = None
    aim, chance, counts_for = Goal.parse(goal), None, None
    if model is None:
        choice, strategy = first_batch(coordinates(x), marked, allowed, m, keys)
    else:
        room = torch.where(allowed, m, 0)[None]
        past = None if earlier is None else _past(earlier)
        counts_for = None if weight is None else models.weights(weight)[None]
        chance = wanted(model, aim)
        both = counts_for if chance is None else chance if counts_for is None else chance * counts_for
        seeks = chance if aim.seeks else None
        choice = model.how.propose(strategy, model.state, m, room, marked[None], past, round, keys, both, seeks)
        said = model.predict(choice.selection.index[0])
    counts = Counter({at: sum(row.repeats for row in rows) for at, rows in known.items()})
    unit = 1.0 if model is None else float(model.state.scale[0]) ** (2 if model.state.task.squared else 1)
    picks = []
    for place, at in enumerate(choice.selection.index[0].tolist()):
        purpose: Numbers = {"goal": goal} if goal != "map" else {}
        words = ""
        if chance is not None:
            purpose["chance"] = float(chance[0, at])
            words = f"; goal {goal}: the {aim.meaning} is {purpose['chance']:.2g}"
        if counts_for is not None:
            purpose["weight"] = float(counts_for[0, at])
            words += f"; it counts {purpose['weight']:g} by {weight}"
        pick = _pick(at, place, choice, strategy, said, counts[at], known.get(at, []), missing, unit)
        picks.append(replace(pick, reason=pick.reason + words, numbers=pick.numbers | purpose))
        counts[at] += 1
    return picks


def affordable(
    picks: Sequence[Pick], described: "pd.DataFrame", settings: dict[str, Any], n: int, budget: float
) -> list[Pick]:
    """At most `n` of these points, in their order, whose costs fit into the budget; others are passed over."""
    if "cost" not in settings:
        raise InputError("a budget needs costs; name their column when the campaign is made, such as --cost price")
    if not (isinstance(budget, int | float) and math.isfinite(budget) and budget > 0):
        raise InputError(f"a budget is a number above 0; got {budget!r}")
    left = float(budget)
    found: list[Pick] = []
    for pick, cost in zip(picks, described[settings["cost"]].astype(float), strict=True):
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


def _past(model: Model) -> Past:
    """The score of an earlier round, computed again."""
    state, estimate = model.state, model.estimate()
    flags = torch.ones(1, len(state.x), dtype=torch.bool)
    view = View(state.x, flags, ~flags, state.keys, state.predictions, task=state.task, skill=state.skill())
    return Past(model.strategy.acquisition.score(view.with_estimate(estimate)), state.scale)


def _pick(
    at: int,
    place: int,
    choice: Choice,
    strategy: Strategy,
    said: Prediction | None,
    count: int,  # measurements so far, those earlier in this batch included
    rows: Sequence[Any],
    missing: str,
    unit: float,
) -> Pick:
    reason, decided = strategy.reason(choice, 0, place, unit)
    numbers: Numbers = {"rule": strategy.name}
    numbers |= {name: value if math.isfinite(value) else None for name, value in decided.items()}
    if said is None:
        return Pick(at, count + 1, f"fills the space ({missing or 'nothing is measured yet'}): {reason}", numbers)
    words, own = said.summary(place)
    numbers |= own
    reason = f"{strategy.name}: {reason}; {words}"
    if not count:
        return Pick(at, 1, reason, numbers)
    numbers["measured_before"] = count
    return Pick(at, count + 1, f"repeat, measured {count}x before{_history(rows)}; {reason}", numbers)


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
    if not values:  # only asked for, earlier in this batch
        return ""
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
