"""The one round: its steps are methods of `Round`, and nothing else assembles its parts (picture: aicau/__init__.py).

`simulate` calls it for hundreds of runs at once, `query` on arrays, a campaign for one run (aicau.proposal).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aicau.acquisition import Score, View
from aicau.bias import Belief, BiasEstimator, assess
from aicau.core import streams
from aicau.core.errors import InputError, shown
from aicau.core.observations import Observations
from aicau.core.omega import Omega
from aicau.core.pool import coordinates
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import MLP, Ensemble
from aicau.ensembles.base import check_predictions, predicted
from aicau.gp.plates import Controls, without_plates
from aicau.prediction import Predictor, State, outcome
from aicau.strategy import FIRST_DIFFERENCE, Choice, Chooser


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
    >>> round.choose(strategy, state, round.estimate(strategy.bias, state), 3).selection.index.shape
    torch.Size([1, 3])
    """

    ensemble: Ensemble
    task: Task = REGRESSION
    plates: bool = True
    scaled: bool = True
    combine: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise InputError(f"task is a Task, such as Task('classification', classes=2); got {shown(self.task)}")
        if hasattr(self.ensemble, "get_params") and not isinstance(self.ensemble, type):
            raise InputError(
                "an estimator of scikit-learn is no ensemble; wrap it: Members(forest), or Regressors([...])"
            )
        if isinstance(self.ensemble, type) or not hasattr(self.ensemble, "fit"):
            raise InputError(f"an ensemble is an object such as MLP(); got {shown(self.ensemble)}")

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
        predictions = check_predictions(self.task, predicted(fitted, x, keys.ndim), keys.ndim)
        return State(self.task, x, rows, fitted, predictions, keys, shift, scale, shared / scale**2)

    def estimate(
        self,
        estimator: BiasEstimator | None,  # a strategy's `bias`
        state: State,
        oracle: Callable[[int], Tensor] | None = None,  # of perfect information: the truth in its own units
    ) -> Omega | Belief | None:
        """Δ̂, or a belief about E Y, in the units of the state; None without an estimator."""
        if estimator is None:
            return None

        def known(count: int) -> Tensor:
            assert oracle is not None
            truth = oracle(count)
            shape = (*state.scale.shape, *[1] * (truth.ndim - state.scale.ndim))
            return (truth - state.shift.reshape(shape)) / state.scale.reshape(shape)

        return assess(estimator, state.evidence(oracle and known))

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
        frame: Tensor | None = None,  # (n, d) coordinates of the pool; None: computed
        weight: Tensor | None = None,  # (..., n) how much the error of each counts; None: all alike
        cost: Tensor | None = None,  # (..., n) of a measurement
        budget: float = float("inf"),
    ) -> Choice:
        """The next m points of every run, and the numbers that decided."""
        view = view_of(state, estimate, room, known, frame=frame, weight=weight, cost=cost, budget=budget)
        return strategy.choose(view, m, previous(state, past, round))

    def predictor(self, state: State, estimator: BiasEstimator | None = None, labels: Sequence[str] = ()) -> Predictor:
        """What is handed out after this round, for one run."""
        names = labels or [str(label) for label in range(self.task.classes)]
        return outcome(self.task.name).predictor.fit(state, estimator, names, self.combine)


def view_of(
    state: State,
    estimate: Omega | Belief | None,
    room: Tensor | None = None,
    known: Tensor | None = None,
    keys: Tensor | None = None,  # (...) of this choice; None: those of the state
    frame: Tensor | None = None,
    **more: Any,  # that a View knows
) -> View:
    """What a strategy sees (other parameters as in `Round.choose`)."""
    times = state.observations.counts(len(state.x))
    return View(
        coordinates(state.x) if frame is None else frame,
        times == 0 if room is None else room > 0,
        times > 0 if known is None else known,
        state.keys if keys is None else keys,
        state.predictions,
        fitted=state.fitted,
        observations=state.observations,
        points=state.x,
        room=room,
        task=state.task,
        skill=state.skill(),
        times=times,
        **more,
    ).with_estimate(estimate)


def previous(state: State, past: Past | None, round: int) -> Score | None:
    """The score of the round before in the units of this one, where a difference to it is taken."""
    if past is None or round < FIRST_DIFFERENCE:
        return None
    return past.score.times((past.scale / state.scale) ** 2)


def round_keys(keys: Tensor, round: int) -> Tensor:  # (...)
    """The random streams of round k; F_0 is fitted to the initial measurements."""
    return streams.fold(keys, round)
