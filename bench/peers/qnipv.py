"""BoTorch: `SingleTaskGP` with its defaults, and points chosen by `qNegIntegratedPosteriorVariance`.

The variance is integrated over at most 512 random points of the pool; points are chosen one after another, those
already chosen pending. BoTorch builds a whole fantasy model per candidate (7 ms each), minutes for a pool of 2,500. For
an exact process the same criterion has a closed form, linear in n: it picks a shortlist, and BoTorch's value decides.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.batching.base import take_best
from aicau.core import streams
from aicau.core.streams import Purpose
from bench.peers.base import require
from bench.peers.gp import GPLine

NODES = 512  # points the variance is integrated over
SHORTLIST = 8  # candidates that BoTorch compares for each point of the batch


def fit(x: Tensor, y: Tensor) -> Any:  # (l, d), (l,)
    models = require("botorch.models", "qnipv")
    scale = require("botorch.models.transforms", "qnipv").Standardize(m=1)
    likelihood = require("gpytorch.mlls", "qnipv").ExactMarginalLogLikelihood
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the optimiser and of rounding: the error of the line shows what it cost
        model = models.SingleTaskGP(x, y[:, None], outcome_transform=scale if len(y) > 1 else None)
        require("botorch.fit", "qnipv").fit_gpytorch_mll(likelihood(model.likelihood, model))
    return model


@torch.no_grad()
def mean(model: Any, x: Tensor) -> Tensor:  # (n, d) -> (n,)
    return torch.cat([model.posterior(part).mean[:, 0] for part in x.split(1000)])


@torch.no_grad()
def select(model: Any, pool: Tensor, allowed: Tensor, m: int, key: Tensor) -> list[int]:
    active = require("botorch.acquisition.active_learning", "qnipv")
    nodes = pool[streams.permutation(streams.fold(key, Purpose.CHOICE), len(pool))[:NODES]]
    variance = Variance.of(model, nodes, pool)
    chosen: list[int] = []
    for _ in range(m):
        gain, left, shortlist = variance.gain(), allowed.clone(), []
        for _ in range(min(SHORTLIST, int(left.sum()))):
            index, left = take_best(gain, left)
            shortlist.append(int(index))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pending = pool[chosen] if chosen else None
            criterion = active.qNegIntegratedPosteriorVariance(model, mc_points=nodes, X_pending=pending)
            best = shortlist[int(criterion(pool[shortlist][:, None]).argmax())]
        chosen.append(best)
        allowed = allowed.clone()
        allowed[best] = False
        variance = variance.after(model, pool, best)
    return chosen


@dataclass(frozen=True)
class Variance:
    """Posterior covariances that the criterion needs, after the rows measured and the points pending."""

    whitened: Tensor  # (rows, n) L⁻¹ k(rows, pool)
    cross: Tensor  # (nodes, n) covariance between nodes and pool
    own: Tensor  # (n,) variance over the pool
    noise: Tensor  # ()

    @classmethod
    def of(cls, model: Any, nodes: Tensor, pool: Tensor) -> "Variance":
        rows, noise = model.train_inputs[0], model.likelihood.noise.squeeze()
        kernel = _kernel(model, rows, rows)
        root = torch.linalg.cholesky(kernel + noise * torch.eye(len(rows), dtype=rows.dtype))
        at_pool = torch.linalg.solve_triangular(root, _kernel(model, rows, pool), upper=False)
        at_nodes = torch.linalg.solve_triangular(root, _kernel(model, rows, nodes), upper=False)
        own = model.covar_module(pool, diag=True) - (at_pool**2).sum(0)
        return cls(at_pool, _kernel(model, nodes, pool) - at_nodes.mT @ at_pool, own, noise)

    def gain(self) -> Tensor:  # (n,)
        """How far the mean variance over the nodes falls when a point is measured."""
        return (self.cross**2).mean(0) / (self.own + self.noise)

    def after(self, model: Any, pool: Tensor, index: int) -> "Variance":
        """The same with one more point pending: one more row of L⁻¹ k(rows, pool)."""
        scale = (self.own[index] + self.noise) ** 0.5
        with_pool = _kernel(model, pool[index : index + 1], pool)[0] - self.whitened[:, index] @ self.whitened
        row = with_pool / scale
        cross = self.cross - self.cross[:, index, None] / scale * row
        return Variance(torch.cat([self.whitened, row[None]]), cross, self.own - row**2, self.noise)


def _kernel(model: Any, a: Tensor, b: Tensor) -> Tensor:
    values: Tensor = model.covar_module(a, b).to_dense()
    return values


LINE = GPLine("qnipv", fit, mean, select)
