"""The round of aicau.round for one run, with one target or several, from a pool of any size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aicau.acquisition import Score, View
from aicau.batching import Gain
from aicau.batching.portions import DRAWN, Portions
from aicau.batching.shortlist import narrowed
from aicau.bias import Correction, Posterior
from aicau.core.engine import HERE, Engine
from aicau.core.pool import Frame, Rows, coordinates
from aicau.core.runs import moved
from aicau.prediction import State
from aicau.round import Past, Round, previous, view_of
from aicau.strategy import Choice, Strategy


@dataclass(frozen=True)
class Look:
    """One target of a batch: what was fitted, its share beside others, and parameters of `Round.choose`."""

    how: Round
    state: State
    share: float = 1.0
    before: "Look | None" = None  # the round before, where a difference to it is taken
    weight: Tensor | None = None  # (1, n)
    chance: Tensor | None = None  # (1, n)

    def scored(
        self,
        strategy: Strategy,
        room: Tensor,
        known: Tensor,
        round: int,
        keys: Tensor | None,
        part: Tensor | None = None,  # (s,) some of the candidates; None: all
        frame: Frame | None = None,  # of all, where there is a part
        device: torch.device | None = None,
    ) -> tuple[Score, View]:
        """The score and the view of all candidates, or of a part of them."""
        state, past = self.among(part, device), None
        if self.before is not None:
            last = self.before.among(part, device)
            score = strategy.acquisition.score(self.before._view(strategy, last, part, frame=last.x))
            past = Past(score, last.scale)
        own = {"room": room, "known": known, "weight": self.weight, "chance": self.chance}
        parts = {name: cut(each, part) for name, each in own.items()} | {"keys": keys}
        parts, frame = moved((parts, frame), state.keys.device)
        at = None if frame is None else frame.coordinates(state.x)
        view = self._view(strategy, state, part, frame=at, **parts)
        score = strategy.score(view, previous(state, past, round))[0]
        if not strategy.joint:
            return self.scaled(score), view
        if self.share != 1:  # such a rule weighs gains, in which noise counts as much as the bias does
            weight = torch.ones_like(score.alpha) if view.weight is None else view.weight
            view = replace(view, weight=self.share * weight)
        return score, view

    def scaled(self, score: Score) -> Score:
        """Times the share of the target."""
        return score.times(torch.tensor([self.share]).to(score.alpha))

    def anew(self) -> "Look":
        """With nothing learned of the pool but the model's correction: a model that was read gives the same batch."""
        kept = {key: value for key, value in self.state.memo.items() if isinstance(value, Correction | Frame)}
        before = None if self.before is None else self.before.anew()
        return replace(self, state=replace(self.state, memo=kept), before=before)

    def among(self, part: Tensor | None, device: torch.device | None) -> State:
        """The state over some candidates, or all, in memory; all parts share what estimators learned."""
        part = torch.arange(len(self.state.x)) if part is None and isinstance(self.state.x, Rows) else part
        state = self.state if part is None else self.state.among(part)
        if device is None or device == state.keys.device:
            return state
        if device not in state.memo:
            state.memo[device] = moved(state.memo, device)
        return replace(moved(replace(state, memo={}), device), memo=state.memo[device])

    def _view(self, strategy: Strategy, state: State, part: Tensor | None, **parts: Tensor | None) -> View:
        """The view of a state, parameters as in `view_of`; the first part of a pool gives `View.level`."""
        view = view_of(state, self.how.estimate(strategy.bias, state), **parts)
        memo, acquisition = self.state.memo, strategy.acquisition
        if part is None or acquisition.level is None:
            return view
        if acquisition not in memo:
            memo[acquisition] = acquisition.level(view)
        return replace(view, level=memo[acquisition])


def cut(values: Tensor | None, part: Tensor | None) -> Tensor | None:  # (1, n), (s,) -> (1, s)
    """Values of some candidates; None: of all."""
    return values if values is None or part is None else values[:, part]


def propose(
    strategy: Strategy,
    looks: Sequence[Look],  # one for each target, of one run
    m: int,
    room: Tensor,  # (1, n)
    known: Tensor,  # (1, n)
    round: int = 0,
    keys: Tensor | None = None,
    cost: Tensor | None = None,  # (1, n)
    budget: float = float("inf"),
    engine: Engine = HERE,  # where the pass over a large pool is computed
    device: torch.device | None = None,  # where the batch is computed; None: where the pool is
) -> Choice:
    """The next m points; of a large pool a rule sees a part (`narrowed`), or scores made in portions (`Portions`)."""
    looks = [look.anew() for look in looks]
    x, fitted = looks[0].state.x, [*looks, *(look.before for look in looks if look.before is not None)]
    frame = looks[0].state.frame
    for look in fitted:
        look.state.memo[Frame] = frame
        if isinstance(strategy.bias, Posterior) and look.how.task.squared:
            strategy.bias.correction(look.state.evidence())  # once, for every part
    measured = torch.cat([known[0].nonzero()[:, 0], *(look.state.observations.index[0] for look in fitted)]).unique()
    scored = [partial(look.scored, strategy, room, known, round, keys, frame=frame, device=device) for look in looks]

    def joined(views: Sequence[tuple[Score, View]], part: Tensor | None = None) -> tuple[Score, View]:
        score, view = views[0]
        price = moved(cut(cost, part), view.allowed.device)
        view = replace(view, others=tuple(views[1:]), cost=price, budget=budget)
        return strategy.together(score, view), view

    part = None
    if isinstance(strategy.batching, Gain):
        also = known.index_fill(1, measured, True)
        own = ([look.chance for look in looks], [look.weight for look in looks], cost, budget)
        part, views = narrowed(scored, *(m, room, also, x, None, *own, frame, engine))
        score, view = joined(views, part)
    elif len(x) <= DRAWN:
        score, view = joined([look(None) for look in scored])
    else:
        at, times = looks[0].state.keys if keys is None else keys, looks[0].state.observations.counts(len(x))
        device = known.device if device is None else device
        view = moved(View(coordinates(x), room > 0, known, at, room=room, times=times), device)
        if strategy.needs_model:
            each = Portions(lambda index: joined([look(index) for look in scored], index), len(x), measured, device)
            score = each.seen(each.drawn()[0], strategy.batching, view.allowed)
        else:
            every = [(look, replace(view, weight=moved(look.weight, device))) for look in looks]
            score, view = joined([(look.scaled(strategy.score(one)[0]), one) for look, one in every])
    choice = strategy.pick(score, None, view, m)
    found = moved(choice.selection, room.device)
    return replace(choice, selection=replace(found, index=found.index if part is None else part[found.index]))


def first_batch(x: Any, known: Tensor, allowed: Tensor, m: int, keys: Tensor) -> tuple[Choice, Strategy]:
    # (n, d) coordinates, a tensor or `Rows`; (n,) measured or pending; (n,); (1,)
    """Before there is a model, the batch fills the space."""
    strategy = Strategy.parse("farthest")
    return strategy.choose(View(x, allowed[None], known[None], keys), m), strategy
