"""The one round. Everything that chooses a batch goes through here, and nothing else assembles its parts.

    measurements ─► what plates share is taken out ─► ensemble F_k ─► bias ─► score ─► batch with reasons
                                                          └──► prediction

`simulate` calls it for hundreds of runs at once, a campaign for one, `query` on arrays; so a comparison measures what a
laboratory gets. The steps are methods of `Round`; `State` (aicau.prediction) is what is known after the second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from aicau.acquisition import Score, View
from aicau.batching import Gain
from aicau.batching.shortlist import narrowed
from aicau.bias import Belief, BiasEstimator, Posterior, assess
from aicau.core import streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.omega import Omega
from aicau.core.pool import Frame, Rows, coordinates
from aicau.core.runs import moved
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import MLP, Ensemble
from aicau.ensembles.base import predicted
from aicau.gp.plates import Controls, without_plates
from aicau.prediction import Predictor, State, outcome
from aicau.strategy import FIRST_DIFFERENCE, Choice, Chooser, Strategy


@dataclass(frozen=True)
class Past:
    """The score of an earlier round, and the scale of the target then."""

    score: Score
    scale: Tensor  # (...)


@dataclass(frozen=True)
class Round:
    """How a round is run.

    Parameters
    ----------
    ensemble : Ensemble
        F_k.
    task : Task
        What is measured.
    plates : bool
        Take out what rows of one plate share before the ensemble is trained (regression only).
    scaled : bool
        Train on targets in units of their own mean and standard deviation.
    combine : bool
        Hand out the ensemble combined with Gaussian processes and trees; False: the ensemble alone, debiased.

    Examples
    --------
    >>> import torch
    >>> from aicau import MLP, Observations, Round, Strategy, streams
    >>> x = torch.linspace(0, 1, 50).double()[:, None]
    >>> index = torch.tensor([[0, 12, 25, 37, 49]])
    >>> rows = Observations(index, x[index][..., 0] ** 2, torch.zeros(5, dtype=torch.long))
    >>> round, strategy, keys = Round(MLP()), Strategy.parse("default"), streams.runs(0, 1)
    >>> state = round.fit(x, rows, keys)
    >>> round.choose(strategy, state, round.assess(strategy, state), 3).selection.index.shape
    torch.Size([1, 3])
    """

    ensemble: Ensemble
    task: Task = REGRESSION
    plates: bool = True
    scaled: bool = True
    combine: bool = True

    @classmethod
    def paper(cls, ensemble: Ensemble | None = None) -> "Round":
        """As the paper runs it: targets as they are, and nothing taken out."""
        return cls(ensemble or MLP(), plates=False, scaled=False, combine=False)

    def fit(
        self,
        x: Tensor,  # (n, d) the pool
        observations: Observations,  # (..., l)
        keys: Tensor,  # (...) one random stream per run, of this round
        controls: Controls | None = None,  # references beside the candidates, for one run
    ) -> State:
        """The ensemble after the measurements, and what it predicts of the pool."""
        if not observations.rows:
            raise InputError("nothing was measured yet, so there is no model; tell some results first")
        y = observations.y
        shared = torch.zeros_like(y[..., 0])
        if self.plates and self.task.squared:
            y, shared = without_plates(x, observations, controls)
        shift, scale = torch.zeros_like(shared), torch.ones_like(shared)
        if self.scaled:
            shift, scale = self.task.units(observations.index, y)
        rows = replace(observations, y=(y - shift[..., None]) / scale[..., None])
        fitted = self.ensemble.fit(x[rows.index], rows.y, keys)
        predictions = predicted(fitted, x, keys.ndim)
        return State(self.task, x, rows, fitted, predictions, keys, shift, scale, shared / scale**2)

    def assess(
        self,
        strategy: Chooser,
        state: State,
        oracle: Callable[[int], Tensor] | None = None,  # of perfect information: the truth in its own units
    ) -> Omega | Belief | None:
        """Δ̂, or a belief about E Y, by the strategy's estimator; None where it has none."""
        return None if strategy.bias is None else self.estimate(strategy.bias, state, oracle)

    def estimate(
        self, estimator: BiasEstimator, state: State, oracle: Callable[[int], Tensor] | None = None
    ) -> Omega | Belief:
        """Δ̂, or a belief about E Y, in the units of the state."""

        def known(count: int) -> Tensor:
            assert oracle is not None
            truth = oracle(count)
            shape = (*state.scale.shape, *[1] * (truth.ndim - state.scale.ndim))
            return (truth - state.shift.reshape(shape)) / state.scale.reshape(shape)

        return assess(estimator, state.evidence(None if oracle is None else known))

    def choose(
        self,
        strategy: Chooser,
        state: State,
        estimate: Omega | Belief | None,
        m: int,
        room: Tensor | None = None,  # (..., n) how often each may still be asked for; None: new points, once each
        known: Tensor | None = None,  # (..., n) measured or pending; None: what was measured
        past: Past | None = None,  # of the round before
        round: int = 0,
        keys: Tensor | None = None,  # (...) of this choice; None: those of the state
        frame: Tensor | None = None,  # (n, d) coordinates of the pool; None: computed
        weight: Tensor | None = None,  # (..., n) how much the error of each counts; None: all alike
        chance: Tensor | None = None,  # (..., n) that each is what is looked for; None: any will do
        others: Sequence[tuple[Score, View]] = (),  # of further targets: `scored`
        cost: Tensor | None = None,  # (..., n) of a measurement
        budget: float = float("inf"),
    ) -> Choice:
        """The next m points of every run, and the numbers that decided."""
        view = view_of(state, estimate, room, known, keys, frame, weight, chance)
        view = replace(view, others=tuple(others), cost=cost, budget=budget)
        return strategy.choose(view, m, _previous(state, past, round))

    def scored(
        self,
        strategy: Strategy,
        state: State,
        estimate: Omega | Belief | None,
        room: Tensor | None = None,
        known: Tensor | None = None,
        past: Past | None = None,
        round: int = 0,
        **parts: Tensor | None,
    ) -> tuple[Score, View]:
        """What a batch for several targets needs to know of one of them; parameters are those of `choose`."""
        view = view_of(state, estimate, room, known, **parts)
        return strategy.score(view, _previous(state, past, round))[0], view

    def predictor(self, state: State, estimator: BiasEstimator | None = None, labels: Sequence[str] = ()) -> Predictor:
        """What is handed out after this round, for one run."""
        names = labels or [str(label) for label in range(self.task.classes)]
        return outcome(self.task.name).fit(state, estimator, names, self.combine)


def view_of(
    state: State,
    estimate: Omega | Belief | None,
    room: Tensor | None,
    known: Tensor | None,
    keys: Tensor | None = None,
    frame: Tensor | None = None,
    weight: Tensor | None = None,
    chance: Tensor | None = None,
) -> View:
    """What is known when a batch is chosen (parameters as in `Round.choose`)."""
    times = state.observations.counts(len(state.x))
    return View(
        coordinates(state.x) if frame is None else frame,
        times == 0 if room is None else room > 0,
        times > 0 if known is None else known,
        state.keys if keys is None else keys,
        state.predictions,
        None,
        state.fitted,
        state.observations,
        state.x,
        room,
        state.task,
        skill=state.skill(),
        times=times,
        weight=weight,
        chance=chance,
    ).with_estimate(estimate)


@dataclass(frozen=True)
class Look:
    """One target of a batch: what was fitted, what it counts beside others, and parameters of `Round.choose`."""

    how: Round
    state: State
    share: float = 1.0
    past: Past | None = None
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
        """The score and what is known, of all candidates or of a part of them."""
        state = whole(self.state) if part is None else self.state.among(part)
        every, past = (room, known, self.weight, self.chance), self.past
        own = every if part is None else tuple(None if each is None else each[:, part] for each in every)
        if device is not None and device != state.keys.device:
            state, own, keys, frame, past = moved((state, own, keys, frame, past), device)
        at = None if frame is None else frame.coordinates(state.x)
        more = {"keys": keys, "frame": at, "weight": own[2], "chance": own[3]}
        estimate = self.how.assess(strategy, state)
        score, view = self.how.scored(strategy, state, estimate, own[0], own[1], past, round, **more)
        return score.times(torch.tensor([self.share]).to(score.alpha)), view


def whole(state: State) -> State:
    """The same with all candidates in memory."""
    return state.among(torch.arange(len(state.x))) if isinstance(state.x, Rows) else state


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
    """The next m points, for one target or several. Where the rule looks at a part of a large pool, nothing is computed
    of the others but their place in a short list; the score of the choice is then that of the part."""
    seen, state = (room, known, round, keys), looks[0].state
    if not isinstance(strategy.batching, Gain) or strategy.difference:
        part, views = None, [look.scored(strategy, *seen, device=device) for look in looks]
    else:
        frame = Frame.of(state.x)
        for look in looks:
            if isinstance(strategy.bias, Posterior) and look.how.task.squared:
                strategy.bias.correction(look.state.evidence())  # once, for every part
        own = ([look.chance for look in looks], [look.weight for look in looks], cost, budget)
        part, views = narrowed(
            [partial(look.scored, strategy, *seen, frame=frame, device=device) for look in looks],
            *(m, room, known, state.x, None, *own, frame, engine),
        )
    view, price = views[0][1], cost if cost is None or part is None else cost[:, part]
    price, past = moved((price, _previous(state, looks[0].past, round)), view.x.device)
    choice = strategy.choose(replace(view, others=tuple(views[1:]), cost=price, budget=budget), m, past)
    found = moved(choice.selection, room.device)
    return replace(choice, selection=replace(found, index=found.index if part is None else part[found.index]))


def _previous(state: State, past: Past | None, round: int) -> Score | None:
    """The score of the round before in the units of this one, where a difference to it is taken."""
    if past is None or round < FIRST_DIFFERENCE:
        return None
    return past.score.times((past.scale / state.scale) ** 2)


def first_batch(
    x: Tensor,  # (n, d) coordinates
    known: Tensor,  # (n,) measured or pending
    allowed: Tensor,  # (n,)
    m: int,
    keys: Tensor,  # (1,)
) -> tuple[Choice, Strategy]:
    """With no model the batch fills the space."""
    strategy = Strategy.parse("farthest")
    return strategy.choose(View(x, allowed[None], known[None], keys), m), strategy


def round_keys(keys: Tensor, round: int) -> Tensor:  # (...)
    """The random streams of round k: F_0 is fitted to what was measured before any model chose."""
    return streams.fold(keys, round)
