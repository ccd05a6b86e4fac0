"""Models that a prediction is combined from, beside the networks: Gaussian processes and trees.

Each is fitted to the means of measured points, weighed by how often a point was measured, and says what it predicts of
every point without the fold that the point is in. A new one is a class with these methods and one line in `MODELS`.

Processes have a free length scale per feature: where few of many features matter, this is worth more than anything
else. Left-out predictions of a process keep the parameters that were fitted to all rows (a closed form); trees are
grown again for every fold.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau import gp, kernels

MOST = 512  # rows that the parameters of a process are fitted on: a cubic cost
TREES = 100
FOLD_TREES = 50  # of a fold: less is enough to know how well trees do


@dataclass(frozen=True)
class Points:
    """Measured points, one row each.

    Parameters
    ----------
    at : Tensor, shape (l, p)
        Coordinates (`aicau.core.pool.Frame`).
    y : Tensor, shape (l,)
        Means of their measurements.
    count : Tensor, shape (l,)
        Measurements of each.
    fold : Tensor of int64, shape (l,)
        Points of one fold are left out together; points with the same features share one.
    seed : int
        Of what is random.
    """

    at: Tensor
    y: Tensor
    count: Tensor
    fold: Tensor
    seed: int


class Model(Protocol):
    """A fitted model; it holds nothing of the pool."""

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """What it predicts."""

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""


@dataclass(frozen=True)
class LeftOut:
    """What a model says of every measured point without its fold."""

    mean: Tensor  # (l,)
    variance: Tensor | None = None  # (l,) of the truth; None: it cannot tell


@dataclass(frozen=True)
class ProcessModel:
    """A Gaussian process with a length scale per feature."""

    posterior: gp.Posterior

    @classmethod
    def fit(cls, points: Points, shape: str) -> "tuple[ProcessModel, LeftOut]":
        """Maximum a posteriori, from one start."""
        valid = torch.ones_like(points.y, dtype=torch.bool)
        x, y, valid, relative = (row[None] for row in (points.at, points.y, valid, 1 / points.count))
        found = settings(shape, x.shape[-1]).fit(x, y, valid, relative, most=MOST)
        error, variance = found.left_out_groups(points.fold)
        unknown = variance - found.noise()[0] / points.count
        return cls(found), LeftOut(points.y - error, unknown.clamp_min(0))

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior mean."""
        return self.posterior.mean(at[None])[0]

    def variance(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior variance of the truth."""
        return self.posterior.variance(at[None])[0]

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""
        own, rows = self.posterior, self.posterior.rows
        assert rows.relative is not None
        kept = {"theta": own.theta, "x": rows.x, "y": rows.y, "relative": rows.relative, "fixed": rows.fixed}
        return kept | {"shift": own.shift, "scale": own.scale}

    @classmethod
    def load(cls, t: dict[str, Tensor], shape: str) -> "ProcessModel":
        """What `tensors` gave."""
        valid, own = torch.ones_like(t["y"], dtype=torch.bool), settings(shape, t["x"].shape[-1])
        rows = gp.Rows(t["x"], t["y"], valid, t["fixed"], t["relative"], shape=shape, constant=own.constant)
        return cls(gp.Posterior.of(t["theta"], rows, t["shift"], t["scale"]))


def settings(shape: str, features: int) -> gp.Process:
    """Wide priors: they hold what the rows say nothing about, and let the rest free."""
    lengths = (0.5 * math.log(features / 2) + 0.5, 1.5)
    return gp.Process(
        shape,
        noise=True,
        constant=10.0,
        signal_prior=(0.0, 1.0),
        length_prior=lengths,
        noise_prior=(math.log(0.05), 1.5),
    )


@dataclass(frozen=True)
class TreesModel:
    """Trees as arrays, one after another (names as in `aicau.kernels.trees_mean`)."""

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor

    @classmethod
    def fit(cls, points: Points, grow: Callable[[int, int], Any]) -> "tuple[TreesModel, LeftOut]":
        """By scikit-learn: `grow` makes an estimator of some trees from a seed."""
        x, y, count, fold = (t.numpy() for t in (points.at.float(), points.y, points.count, points.fold))
        whole = grow(TREES, points.seed).fit(x, y, sample_weight=count)
        left_out = np.empty_like(y)
        for out in np.unique(fold):
            kept = fold != out
            some = grow(FOLD_TREES, points.seed).fit(x[kept], y[kept], sample_weight=count[kept])
            left_out[~kept] = some.predict(x[~kept])
        return cls.of(whole), LeftOut(torch.from_numpy(left_out))

    @classmethod
    def of(cls, forest: Any) -> "TreesModel":
        """The trees of a fitted scikit-learn forest."""
        trees = [one.tree_ for one in forest.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.cumsum(sizes) - sizes

        def below(name: str) -> Tensor:
            children = [getattr(tree, name) for tree in trees]
            moved = [np.where(child >= 0, child + root, -1) for child, root in zip(children, roots, strict=True)]
            return torch.from_numpy(np.concatenate(moved).astype(np.int64))

        def joined(parts: list[NDArray[Any]], kind: type) -> Tensor:
            return torch.from_numpy(np.concatenate(parts).astype(kind))

        return cls(
            torch.from_numpy(roots.astype(np.int64)),
            joined([tree.feature for tree in trees], np.int64),
            joined([tree.threshold for tree in trees], np.float64),
            below("children_left"),
            below("children_right"),
            joined([tree.value[:, 0, 0] for tree in trees], np.float64),
        )

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The mean of the trees."""
        return kernels.trees_mean(at, **self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""
        return dict(vars(self))


def _extra(trees: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import

    return ExtraTreesRegressor(trees, random_state=seed, n_jobs=1)


def _forest(trees: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(trees, random_state=seed, n_jobs=1)


@dataclass(frozen=True)
class Kind:
    """How a model is fitted and loaded."""

    fit: Callable[[Points], tuple[Model, LeftOut]]
    load: Callable[[dict[str, Tensor]], Model]


MODELS: dict[str, Kind] = {
    "rbf": Kind(lambda points: ProcessModel.fit(points, "rbf"), lambda t: ProcessModel.load(t, "rbf")),
    "matern": Kind(lambda points: ProcessModel.fit(points, "matern"), lambda t: ProcessModel.load(t, "matern")),
    "forest": Kind(lambda points: TreesModel.fit(points, _forest), lambda t: TreesModel(**t)),
    "extra": Kind(lambda points: TreesModel.fit(points, _extra), lambda t: TreesModel(**t)),
}
