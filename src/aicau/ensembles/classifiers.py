"""Adaptors for classifiers people already have: `fit` on class numbers, then `predict → (..., K, n, c)`.

A scikit-learn classifier knows only the classes it was shown, and many answer with probabilities of exactly 0. A class
that a member never saw gets 0 from it, and then every member is mixed with the uniform distribution: `floor` is the
share of it, and the least probability it can give is floor/c. Without it one such 0 makes the divergence infinite.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aicau.core import checks
from aicau.core.errors import InputError
from aicau.ensembles.base import check_rows, fold_membership, one_hot
from aicau.ensembles.estimators import FittedFunctions, each_run, seeded, seeds, train_module


@dataclass(frozen=True)
class Classifiers:
    """scikit-learn classifiers with `predict_proba` as members, each cloned and trained on the folds but its own."""

    estimators: Sequence[Any]
    classes: int = 2
    floor: float = 0.01

    def __post_init__(self) -> None:
        checks.positive(self.classes, "classes", 2)
        if len(self.estimators) == 0:
            raise InputError("an ensemble needs at least one member; got none")
        for estimator in self.estimators:
            if not hasattr(estimator, "predict_proba"):
                raise InputError(f"{type(estimator).__name__} has no predict_proba, so it gives no probabilities")
        if not 0 <= self.floor < 1:
            raise InputError(f"the share of the uniform distribution lies between 0 and 1; got {self.floor}")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)
        one_hot(y, self.classes)  # refuses what is no class
        unseen = fold_membership(keys, len(self.estimators), x)
        numbers = seeds(keys, len(self.estimators))
        runs = []
        for a, b, out, seed in each_run(x, y, unseen, numbers):
            members = []
            for k, estimator in enumerate(self.estimators):
                rows, labels = ~out[k], b.astype(np.int64)
                if len(np.unique(labels[rows])) < 2:
                    members.append(self._constant(labels[rows][0]))
                    continue
                model = seeded(deepcopy(estimator), int(seed[k])).fit(a[rows], labels[rows])
                members.append(self._function(model))
            runs.append(tuple(members))
        return FittedFunctions(tuple(runs), y.shape[:-1], unseen)

    def _function(self, model: Any) -> Callable[[Tensor], Tensor]:
        def function(at: Tensor) -> Tensor:  # (n, d) -> (n, c)
            known = torch.as_tensor(np.asarray(model.predict_proba(at.detach().cpu().numpy()))).double()
            whole = known.new_zeros(at.shape[0], self.classes)
            whole[:, torch.as_tensor(np.asarray(model.classes_)).long()] = known
            return self._floored(whole)

        return function

    def _constant(self, label: int) -> Callable[[Tensor], Tensor]:
        """Many classifiers refuse to train on one class; the answer is that class."""
        return lambda at: self._floored(one_hot(torch.full((at.shape[0],), int(label)), self.classes))

    def _floored(self, probabilities: Tensor) -> Tensor:
        return (1 - self.floor) * probabilities + self.floor / self.classes


@dataclass(frozen=True)
class ClassModules:
    """Members made by a factory of `torch.nn.Module` with one output (a logit) per class, trained by cross-entropy."""

    factory: Callable[[int], nn.Module]  # number of features -> a new module with `classes` outputs
    classes: int = 2
    members: int = 5
    epochs: int = 500
    learning_rate: float = 1e-3
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        checks.positive(self.classes, "classes", 2)
        checks.positive(self.members, "members")
        checks.positive(self.epochs, "epochs")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)
        targets = one_hot(y, self.classes)

        def loss(raw: Tensor, target: Tensor) -> Tensor:
            if raw.shape != target.shape:
                wanted, got = tuple(target.shape), tuple(raw.shape)
                raise InputError(f"a module must give one output per class, shape {wanted}; got {got}")
            return nn.functional.cross_entropy(raw, target, label_smoothing=self.smoothing)

        return train_module(self, x, targets, keys, loss, lambda raw: torch.softmax(raw.double(), -1))
