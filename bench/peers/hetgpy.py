"""hetGPy: its heteroskedastic process where some point was measured twice, else its homoskedastic one, and IMSPE.

Points are chosen one after another, each the candidate that leaves the least integrated mean squared prediction error
over the unit cube (Binois et al. 2019), without looking ahead; no point twice in one batch, measured ones again in a
later one. hetGPy's own search over a list of candidates fails in 1.0.6, and its criterion takes one point at a time:
the criterion is evaluated here for all candidates at once, from its fitted model, its integrals and its kernel.
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.peers.base import require
from bench.peers.gp import GPLine

Array = NDArray[np.float64]


def fit(x: Tensor, y: Tensor) -> Any:  # (l, d), (l,)
    package = require("hetgpy", "hetgpy")
    rows, values = x.numpy().copy(), y.numpy().copy()
    bounds = _bounds(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the optimiser and of rounding: the error of the line shows what it cost
        if len(np.unique(rows, axis=0)) < len(rows):
            try:
                return package.hetGP().mle(rows.copy(), values.copy(), **bounds)
            except (np.linalg.LinAlgError, ValueError):
                pass  # its noise process cannot be fitted to these replicates
        return package.homGP().mle(rows, values, **bounds)


def _bounds(rows: Array) -> dict[str, Array]:
    """hetGPy's bounds of the length scales; a feature that does not vary among the rows needs them from the cube."""
    if (np.ptp(rows, axis=0) > 0).all():
        return {}
    corners = np.stack([np.zeros(rows.shape[1]), np.ones(rows.shape[1])])
    found: dict[str, Array] = require("hetgpy.auto_bounds", "hetgpy").auto_bounds(np.concatenate([rows, corners]))
    return found


def mean(model: Any, x: Tensor) -> Tensor:  # (n, d) -> (n,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [model.predict(part.numpy())["mean"] for part in x.split(1000)]  # it builds an n × n matrix
    return torch.from_numpy(np.concatenate(parts).reshape(-1))


def select(model: Any, pool: Tensor, allowed: Tensor, m: int, key: Tensor) -> list[int]:
    candidates = Candidates(model, pool.numpy())
    free = allowed.numpy().copy()
    chosen: list[int] = []
    for _ in range(m):
        best = int(np.where(free, candidates.imspe(), np.inf).argmin())
        free[best] = False
        chosen.append(best)
        candidates.measure(best)
    return chosen


class Candidates:
    """IMSPE after one more measurement, for every candidate: `crit_IMSPE` of hetGPy, over the pool at once."""

    def __init__(self, model: Any, x: Array) -> None:  # (n, d)
        self.x, design = x, model.X0
        self.shape = {"theta": model.theta, "type": model.covtype}
        self.integral = require("hetgpy.IMSE", "hetgpy").Wij
        self.kernel = require("hetgpy.covariance_functions", "hetgpy").cov_gen
        self.inverse, self.jitter = model.Ki.copy(), model.eps
        self.noise = np.asarray(model.predict(x=x, nugs_only=True)["nugs"]).reshape(-1) / model.nu_hat  # (n,)
        self.within = self._integral(design, design)  # (l, l)
        self.between = self._integral(design, x)  # (l, n)
        self.own = np.array([self._integral(x[i : i + 1], x[i : i + 1])[0, 0] for i in range(len(x))])  # (n,)
        self.near = np.asarray(self.kernel(design, x, **self.shape))  # (l, n)

    def _integral(self, a: Array, b: Array) -> Array:
        return np.asarray(self.integral(mu1=a, mu2=b, **self.shape))

    def imspe(self) -> Array:  # (n,)
        weights = self.inverse @ self.near  # (l, n)
        variance = 1 - (self.near * weights).sum(0) + self.noise + self.jitter
        g = -weights / variance
        change = (g * (self.within @ g)).sum(0) * variance + 2 * (self.between * g).sum(0) + self.own / variance
        return 1 - (self.inverse * self.within).sum() - change

    def measure(self, index: int) -> None:
        """Count candidate `index` as measured once more: a row of its own, which for a repeat is the same thing."""
        point = self.x[index : index + 1]
        weights = self.inverse @ self.near[:, index]
        variance = 1 - self.near[:, index] @ weights + self.noise[index] + self.jitter
        g = -weights / variance
        top = self.inverse + variance * np.outer(g, g)
        self.inverse = np.block([[top, g[:, None]], [g[None], np.array([[1 / variance]])]])
        column = self.between[:, index]
        self.within = np.block([[self.within, column[:, None]], [column[None], np.array([[self.own[index]]])]])
        self.between = np.concatenate([self.between, self._integral(point, self.x)])
        self.near = np.concatenate([self.near, np.asarray(self.kernel(point, self.x, **self.shape))])


LINE = GPLine("hetgpy", fit, mean, select)
