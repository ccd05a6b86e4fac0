"""Lines with a model of their own: a Gaussian process of another package that is fitted, predicts and chooses.

Such a line runs in the same loop as our strategies, with its process in the place of F_k, so initial points, noise,
what may be measured and the error recorded are those of every other line.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.acquisition import View
from aicau.core.errors import InputError
from aicau.core.pool import Pool
from aicau.ensembles.base import FittedFunctions, check_rows
from aicau.problems import Problem
from aicau.round import Round
from aicau.simulation.loop import Lane, Work
from bench.peers.base import Peer


@dataclass(frozen=True)
class Box:
    """The pool as a unit cube; a feature that is constant over the pool is left out."""

    low: Tensor  # (d,)
    span: Tensor  # (d,)

    @classmethod
    def of(cls, pool: Pool) -> "Box":
        return cls(pool.x.amin(0), pool.x.amax(0) - pool.x.amin(0))

    def __call__(self, x: Tensor) -> Tensor:  # (n, d) -> (n, features that vary)
        varies = self.span > 0
        return (x.double()[:, varies] - self.low[varies]) / self.span[varies]


@dataclass(frozen=True)
class GPLine:
    """A process by its name: how it is fitted, its posterior mean, how it chooses; features are in the unit cube."""

    name: str
    fit: Callable[[Tensor, Tensor], Any]  # x (l, d), y (l,) -> model
    mean: Callable[[Any, Tensor], Tensor]  # model, x (n, d) -> (n,)
    select: Callable[[Any, Tensor, Tensor, int, Tensor], list[int]]  # model, pool (n, d), allowed (n,), m, key ()

    @property
    def chooser(self) -> Peer:
        """What stands in a lane."""
        return Peer(self.name, self._select)

    def ensemble(self, pool: Pool) -> "Surrogates":
        """What stands in the place of F_k: one member, the posterior mean."""
        return Surrogates(self, Box.of(pool))

    def _select(self, view: View, m: int) -> list[int]:
        surrogate = view.fitted.functions[0] if isinstance(view.fitted, FittedFunctions) else None
        if not isinstance(surrogate, Surrogate) or surrogate.line != self or view.points is None:
            raise InputError(f"{self.name} chooses with its own model; run it with gp_curve")
        return self.select(surrogate.model, surrogate.box(view.points), view.allowed[0], m, view.keys[0])


@dataclass(frozen=True)
class Surrogate:
    """A fitted process of one run, as a function of x."""

    line: GPLine
    box: Box
    model: Any

    def __call__(self, x: Tensor) -> Tensor:  # (n, d) -> (1, n)
        return self.line.mean(self.model, self.box(x))[None]


@dataclass(frozen=True)
class Surrogates:
    """An ensemble of one member per run: the process of a line."""

    line: GPLine
    box: Box

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)
        rows = y.shape[-1]
        pairs = zip(x.reshape(-1, rows, x.shape[-1]), y.reshape(-1, rows), strict=True)
        runs = tuple(Surrogate(self.line, self.box, self.line.fit(self.box(a), b.double())) for a, b in pairs)
        return FittedFunctions(runs, torch.zeros(*y.shape[:-1], 1, rows, dtype=torch.bool))


def gp_curve(
    problem: Problem,
    peer: GPLine,
    initial: int,
    batch_size: int,
    rounds: int,
    keys: Tensor,  # (runs,) as `streams.runs` gives them
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:  # mse (runs, rounds + 1), queried (runs, rows), seconds
    """Learning curves of a line: error of its posterior mean over the pool, and what it asked for."""
    begin = time.perf_counter()
    lanes, how = (Lane(problem, peer.chooser),), Round(peer.ensemble(problem.pool))
    ran = Work(lanes, initial, batch_size, rounds, keys, "cpu", how).run()
    return ran.mse[0], ran.queried[0], time.perf_counter() - begin
