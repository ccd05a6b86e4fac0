"""Models of scikit-learn, or anything with `fit` and `predict`, as an ensemble: as fast as the model they wrap.

A classifier knows only the classes it was shown, and many answer with probabilities of exactly 0. A class that a member
never saw gets 0 from it, and then every member is mixed with the uniform distribution: `floor` is the share of it.
Without it one such 0 makes the divergence infinite.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.errors import InputError
from aicau.core.streams import Purpose
from aicau.ensembles.base import check_rows, fold_membership, one_hot

Function = Callable[[Tensor], Tensor]  # (n, d) -> (n,), or (n, c) for classes


@dataclass(frozen=True)
class FittedFunctions:
    """Fitted members as plain functions of (n, d) arrays, one list per run."""

    functions: tuple[tuple[Function, ...], ...]  # runs × K
    lead: tuple[int, ...]
    unseen: Tensor  # (..., K, l)

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n); (..., K, n, c) for classes
        """Every member at every point."""
        points = x.expand(*self.lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
        runs = [torch.stack([f(at) for f in members]) for members, at in zip(self.functions, points, strict=True)]
        out = torch.stack(runs)
        return out.reshape(*self.lead, *out.shape[1:]).to(x.device)

    def __getitem__(self, run: int | slice | list[int]) -> "FittedFunctions":
        """The ensembles of some runs (along the first leading dimension)."""
        place = torch.arange(len(self.functions)).reshape(self.lead)[run]
        return FittedFunctions(tuple(self.functions[i] for i in place.flatten()), place.shape, self.unseen[run])


@dataclass(frozen=True)
class Regressors:
    """Regressors as members, each cloned and trained on all folds but its own.

    Parameters
    ----------
    estimators : sequence
        Objects with `fit(X, y)` and `predict(X)`; an open `random_state` is set from the run's stream.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from aicau import Regressors, query
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, float("nan"), float("nan")]
    >>> len(query("lc", X, y, ensemble=Regressors([Ridge(0.1), Ridge(10.0)])))
    1
    """

    estimators: Sequence[Any]

    def __post_init__(self) -> None:
        _check_some(self.estimators)

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the members of every run, one after another."""
        check_rows(x, y, keys)
        return _fit_each(self.estimators, x, y, keys, lambda model, a, b: values_of(model.fit(a, b)))


@dataclass(frozen=True)
class Classifiers:
    """Classifiers with `predict_proba` as members, each cloned and trained on all folds but its own.

    Parameters
    ----------
    estimators : sequence
        Objects with `fit(X, y)` and `predict_proba(X)`.
    classes : int
        Labels are numbers from 0 to classes − 1.
    floor : float
        Share of the uniform distribution in every prediction.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> Classifiers([DecisionTreeClassifier()] * 5, classes=3).classes
    3
    """

    estimators: Sequence[Any]
    classes: int = 2
    floor: float = 0.01

    def __post_init__(self) -> None:
        checks.positive(self.classes, "classes", 2)
        _check_some(self.estimators)
        for estimator in self.estimators:
            if not hasattr(estimator, "predict_proba"):
                raise InputError(f"{type(estimator).__name__} has no predict_proba, so it gives no probabilities")
        if not 0 <= self.floor < 1:
            raise InputError(f"the share of the uniform distribution lies between 0 and 1; got {self.floor}")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the members of every run, one after another."""
        check_rows(x, y, keys)
        one_hot(y, self.classes)  # refuses what is no class

        def one(model: Any, a: Any, b: Any) -> Function:
            labels = b.astype(np.int64)
            if len(np.unique(labels)) < 2:  # many classifiers refuse to train on one class; the answer is that class
                return lambda at: self._floored(one_hot(torch.full((len(at),), int(labels[0])), self.classes))
            return self._function(model.fit(a, labels))

        return _fit_each(self.estimators, x, y, keys, one)

    def _function(self, model: Any) -> Function:
        def function(at: Tensor) -> Tensor:  # (n, d) -> (n, c)
            known = torch.as_tensor(np.asarray(model.predict_proba(at.detach().cpu().numpy()))).double()
            whole = known.new_zeros(at.shape[0], self.classes)
            whole[:, torch.as_tensor(np.asarray(model.classes_)).long()] = known
            return self._floored(whole)

        return function

    def _floored(self, probabilities: Tensor) -> Tensor:
        return (1 - self.floor) * probabilities + self.floor / self.classes


@dataclass(frozen=True)
class Members:
    """One regressor that has members of its own: a forest, extra trees, bagging.

    Which rows a member saw is read from `estimators_samples_` (bagging, and forests since scikit-learn 1.4); without it
    every row counts as seen.

    Parameters
    ----------
    estimator : object
        With `fit(X, y)`; after it `estimators_`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from aicau import Members, query
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> y = np.where(np.arange(20) < 10, X[:, 0], np.nan)
    >>> len(query("pemse:direct:spread", X, y, batch_size=3, ensemble=Members(RandomForestRegressor(10))))
    3
    """

    estimator: Any

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the model of every run, one after another."""
        check_rows(x, y, keys)
        runs, unseen = [], []
        for a, b, _, seed in each_run(x, y, y, seeds(keys, 1)):
            model = seeded(deepcopy(self.estimator), int(seed[0])).fit(a, b)
            members = getattr(model, "estimators_", None)
            if members is None or len(members) == 0:
                raise InputError(
                    f"{type(model).__name__} has no members after fitting; use Regressors for a list of models"
                )
            columns = getattr(model, "estimators_features_", [slice(None)] * len(members))
            members = list(np.asarray(members, dtype=object).ravel())
            runs.append(tuple(values_of(m, c) for m, c in zip(members, columns, strict=True)))
            out = torch.zeros(len(members), len(b), dtype=torch.bool)
            for k, rows in enumerate(getattr(model, "estimators_samples_", [])):
                out[k] = True
                out[k, torch.as_tensor(np.asarray(rows)).long()] = False
            unseen.append(out)
        shape = (*y.shape[:-1], *unseen[0].shape)
        return FittedFunctions(tuple(runs), y.shape[:-1], torch.stack(unseen).reshape(shape).to(x.device))


def _check_some(estimators: Sequence[Any]) -> None:
    if len(estimators) == 0:
        raise InputError("an ensemble needs at least one member; got none")


def _fit_each(
    estimators: Sequence[Any],
    x: Tensor,  # (..., l, d)
    y: Tensor,  # (..., l)
    keys: Tensor,  # (...)
    train: Callable[[Any, NDArray[Any], NDArray[Any]], Function],  # a clone and its rows -> the fitted function
) -> FittedFunctions:
    """One clone of every estimator per run, on all folds but its own."""
    unseen = fold_membership(keys, len(estimators), x)
    runs = [
        tuple(train(seeded(deepcopy(one), int(seed[k])), a[~out[k]], b[~out[k]]) for k, one in enumerate(estimators))
        for a, b, out, seed in each_run(x, y, unseen, seeds(keys, len(estimators)))
    ]
    return FittedFunctions(tuple(runs), y.shape[:-1], unseen)


def seeds(keys: Tensor, members: int) -> Tensor:  # (..., K) non-negative 31-bit numbers
    """A seed for every member of every run."""
    return streams.bits(streams.fold(keys, Purpose.WEIGHTS), members) & 0x7FFFFFFF


def seeded(model: Any, seed: int) -> Any:
    """Set `random_state` where the model has one that was left open."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    if "random_state" in parameters and parameters["random_state"] is None:
        model.set_params(random_state=seed)
    return model


def each_run(x: Tensor, y: Tensor, unseen: Tensor, seeds: Tensor) -> Iterator[tuple[Any, Any, Any, Any]]:
    """NumPy views of one run after another."""
    rows = y.shape[-1]
    flat = (
        x.reshape(-1, rows, x.shape[-1]),
        y.reshape(-1, rows),
        unseen.reshape(-1, *unseen.shape[y.ndim - 1 :]),
        seeds.reshape(-1, seeds.shape[-1]),
    )
    return zip(*(t.detach().cpu().numpy() for t in flat), strict=True)


def values_of(model: Any, columns: Any = slice(None)) -> Function:
    """A fitted regressor as a function."""

    def function(at: Tensor) -> Tensor:
        return torch.as_tensor(np.asarray(model.predict(at.detach().cpu().numpy()[:, columns])).reshape(-1))

    return function
