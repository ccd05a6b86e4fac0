"""Extra trees: grown by scikit-learn, kept as arrays, grown again for every fold.

A random forest beside them did not help (docs/comparison.md).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.ensembles import kernels
from aicau.prediction.models.base import LeftOut, Points

TREES = 100
FOLD_TREES = 30  # of a fold: less is enough to know how well trees do


@dataclass(frozen=True)
class TreesModel:
    """Trees as arrays, one after another (names as in `aicau.ensembles.kernels.trees_mean`)."""

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor

    @classmethod
    def fit(cls, points: Points) -> "tuple[TreesModel, LeftOut]":
        """By scikit-learn."""
        whole, left_out = forest(points, points.y)
        return cls.of(whole), LeftOut(left_out)

    @classmethod
    def of(cls, forest: Any) -> "TreesModel":
        """The trees of a fitted scikit-learn forest."""
        trees = [one.tree_ for one in forest.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.cumsum(sizes) - sizes

        def joined(parts: Iterable[NDArray[Any]], kind: type = np.int64) -> Tensor:
            return torch.from_numpy(np.concatenate(list(parts)).astype(kind))

        def below(name: str) -> Tensor:
            children = zip((getattr(tree, name) for tree in trees), roots, strict=True)
            return joined(np.where(child >= 0, child + root, -1) for child, root in children)

        return cls(
            torch.from_numpy(roots.astype(np.int64)),
            joined(tree.feature for tree in trees),
            joined((tree.threshold for tree in trees), np.float64),
            below("children_left"),
            below("children_right"),
            joined((tree.value[:, 0, 0] for tree in trees), np.float64),
        )

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The mean of the trees."""
        return kernels.trees_mean(at, **self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "TreesModel":
        return cls(**tensors)


def forest(points: Points, y: Tensor, leaf: int = 1) -> tuple[Any, Tensor]:  # (l,) or (l, c)
    """Extra trees (thresholds at random, every tree on all rows), and what they say of left-out points."""
    from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import

    x, values, count, fold = (t.numpy() for t in (points.at.float(), y, points.count, points.fold))

    def grow(trees: int, kept: NDArray[Any]) -> Any:
        model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, random_state=points.seed, n_jobs=1)
        return model.fit(x[kept], values[kept], sample_weight=count[kept])

    left_out = np.empty_like(values)
    for out in np.unique(fold):
        left_out[fold == out] = grow(FOLD_TREES, fold != out).predict(x[fold == out])
    return grow(TREES, fold >= 0), torch.from_numpy(left_out)
