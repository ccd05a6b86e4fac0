"""Models of scikit-learn, or anything with `fit` and `predict`, as an ensemble.

A class that a member never saw gets probability 0 from it, which would make the divergence infinite; so all are mixed
with the uniform distribution (`floor`).
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.errors import InputError, shown
from aicau.core.streams import Purpose
from aicau.ensembles.base import FittedFunctions, Function, check_rows, each_run, fold_membership, one_hot


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

        def train(k: int, a: Tensor, b: Tensor, seed: int) -> Function:
            return values_of(seeded(self.estimators[k], seed).fit(array(a), array(b)))

        return fit_each(len(self.estimators), x, y, y, keys, train)


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
        one_hot(y, self.classes)  # refuses what is no class

        def train(k: int, a: Tensor, b: Tensor, seed: int) -> Function:
            labels = array(b).astype(np.int64)
            known, model = np.unique(labels), None
            if len(known) > 1:  # many classifiers refuse to train on one class; the answer is that class
                model = seeded(self.estimators[k], seed).fit(array(a), labels)
                known = model.classes_

            def function(at: Tensor) -> Tensor:  # (n, d) -> (n, c)
                whole = torch.zeros(len(at), self.classes, dtype=torch.double)
                found = np.ones((len(at), 1)) if model is None else model.predict_proba(array(at))
                whole[:, torch.as_tensor(known).long()] = torch.as_tensor(found).double()
                return (1 - self.floor) * whole + self.floor / self.classes

            return function

        return fit_each(len(self.estimators), x, y, y, keys, train)


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

    def __post_init__(self) -> None:
        _check_some([self.estimator])

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the model of every run, one after another."""
        check_rows(x, y, keys)
        runs, unseen = [], []
        for a, b, seed in each_run(keys, x, y, seeds(keys, 1)):
            model = seeded(self.estimator, int(seed)).fit(array(a), array(b))
            members = list(np.asarray(getattr(model, "estimators_", []), dtype=object).ravel())
            if not members:
                kind = type(model).__name__
                raise InputError(f"{kind} has no members after fitting; use Regressors for a list of models")
            columns = getattr(model, "estimators_features_", [slice(None)] * len(members))
            runs.append(together([values_of(m, c) for m, c in zip(members, columns, strict=True)]))
            whole, mean = values_of(model)(a).double(), runs[-1](a).double().mean(0)
            if not torch.allclose(whole, mean, rtol=1e-4, atol=1e-4 * float(whole.abs().max())):
                raise InputError(
                    f"the members of a {type(model).__name__} do not average to what it predicts (they may be steps of"
                    " it); use Regressors for a list of models"
                )
            out = torch.zeros(len(members), len(b), dtype=torch.bool)
            for k, rows in enumerate(getattr(model, "estimators_samples_", [])):
                out[k] = True
                out[k, torch.as_tensor(np.asarray(rows)).long()] = False
            unseen.append(out)
        return FittedFunctions(tuple(runs), torch.stack(unseen).reshape(*keys.shape, *unseen[0].shape).to(x.device))


def _check_some(estimators: Sequence[Any]) -> None:
    if not isinstance(estimators, Sequence):
        raise InputError(f"an ensemble of several models takes a list of them; got {shown(estimators)}")
    if len(estimators) == 0:
        raise InputError("an ensemble needs at least one member; got none")
    if wrong := [one for one in estimators if isinstance(one, type) or not hasattr(one, "fit")]:
        raise InputError(f"a member is an object with fit and predict, such as Ridge(); got {shown(wrong[0])}")


def fit_each(
    members: int,
    x: Tensor,  # (..., l, d)
    y: Tensor,  # (..., l)
    targets: Tensor,  # (..., l) or (..., l, c)
    keys: Tensor,  # (...)
    train: Callable[[int, Tensor, Tensor, int], Function],  # member, its rows and its seed -> the fitted function
) -> FittedFunctions:
    """Every member of every run, on all folds but its own, one after another."""
    check_rows(x, y, keys)
    unseen = fold_membership(keys, members, x)
    runs = [
        together([train(k, a[~out[k]], b[~out[k]], int(seed[k])) for k in range(members)])
        for a, b, out, seed in each_run(keys, x, targets, unseen, seeds(keys, members))
    ]
    return FittedFunctions(tuple(runs), unseen)


def together(members: Sequence[Function]) -> Function:  # (n, d) -> (K, n[, c])
    """All members of a run as one function."""
    return lambda at: torch.stack([member(at) for member in members])


def seeds(keys: Tensor, members: int) -> Tensor:  # (..., K) non-negative 31-bit numbers
    """A seed for every member of every run."""
    return streams.bits(streams.fold(keys, Purpose.WEIGHTS), members) & 0x7FFFFFFF


def seeded(model: Any, seed: int) -> Any:
    """A copy of a model, with `random_state` set where that was left open, also in the models inside a pipeline."""
    model = deepcopy(model)
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    if left := [
        name for name, value in parameters.items() if re.search(r"(^|__)random_state$", name) and value is None
    ]:
        model.set_params(**dict.fromkeys(left, seed))
    return model


def array(values: Tensor) -> NDArray[Any]:
    return values.detach().cpu().numpy()


def values_of(model: Any, columns: Any = slice(None)) -> Function:
    """A fitted regressor as a function."""

    def function(at: Tensor) -> Tensor:
        return torch.as_tensor(np.asarray(model.predict(array(at)[:, columns])).reshape(-1))

    return function
