"""F_k: `fit` gives a fitted ensemble, whose `predict` gives one function per member, (..., K, n)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.pool import OnDemand, Rows
from aicau.core.streams import Purpose
from aicau.core.task import Task

Run = int | slice | list[int]
Function = Callable[[Tensor], Tensor]  # (n, d) -> (n,), or (n, c) for classes; of all members with (K,) in front
AT_ONCE = 100_000  # candidates predicted at a time


class Fitted(Protocol):
    """A distribution of fitted functions."""

    @property
    def unseen(self) -> Tensor:  # (..., K, l)
        """True where a member was not trained on a row: its residual there is out of fold."""

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Every member at every point."""

    def __getitem__(self, run: Run) -> "Fitted":
        """The ensembles of some runs (along the first leading dimension)."""


class Ensemble(Protocol):
    """Parameters only; `fit` computes and returns something new."""

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> Fitted:  # (..., l, d), (..., l), (...)
        """The ensembles of all runs; `keys` is one random stream for each."""


@dataclass(frozen=True)
class FittedFunctions:
    """Fitted members as plain functions of (n, d) arrays."""

    functions: tuple[Function, ...]  # one for each run: all its members
    unseen: Tensor  # (..., K, l)

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n); (..., K, n, c) for classes
        """Every member at every point."""
        lead = self.unseen.shape[:-2]
        points = x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
        out = torch.stack([function(at) for function, at in zip(self.functions, points, strict=True)])
        return out.reshape(*lead, *out.shape[1:]).to(x.device)

    def __getitem__(self, run: Run) -> "FittedFunctions":
        """The ensembles of some runs (along the first leading dimension)."""
        place = torch.arange(len(self.functions)).reshape(self.unseen.shape[:-2])[run]
        return FittedFunctions(tuple(self.functions[i] for i in place.flatten()), self.unseen[run])


def predicted(fitted: Fitted, x: Any, runs: int) -> Any:  # (n, d) -> (..., K, n)
    """What members predict of a pool; `OnDemand` if the pool is read in chunks."""
    if isinstance(x, Rows):
        return OnDemand(fitted.predict, x)
    return torch.cat([fitted.predict(part) for part in x.split(AT_ONCE)], runs + 1)


def check_predictions(task: Task, predictions: Any, runs: int) -> Any:  # (..., K, n[, c])
    """What members predict, as the task wants it; an error says what an ensemble gives in its place."""
    if not isinstance(predictions, Tensor):  # read when it is wanted
        return predictions
    wanted = (task.classes,) if task.probabilities else ()
    if tuple(predictions.shape[runs + 2 :]) != wanted:
        each = f"{task.classes} probabilities" if wanted else "one number"
        raise InputError(
            f"for {task.name} a member predicts {each} of each candidate, and this ensemble gives another shape; make"
            f" it for the task, as MLP(task={task})"
        )
    if not bool(torch.isfinite(predictions).all()):
        raise InputError("the ensemble predicts NaN or infinity for some candidates; check its model on these features")
    if task.name == "count" and bool((predictions < 0).any()):
        raise InputError(
            f"the ensemble predicts counts below 0; use one that cannot, as MLP(task={task}), or a forest or a Poisson"
            " regression of scikit-learn"
        )
    return predictions


def check_rows(x: Tensor, y: Tensor, keys: Tensor) -> None:
    """Check that shapes match and that something was measured."""
    if x.ndim < 2 or x.shape[:-1] != y.shape or keys.shape != y.shape[:-1]:
        shapes = tuple(x.shape), tuple(y.shape), tuple(keys.shape)
        raise InputError(f"an ensemble is fitted on x (..., l, d), y (..., l) and keys (...); got shapes {shapes}")
    if y.shape[-1] == 0:
        raise InputError("an ensemble needs at least one measurement; got none")


def each_run(keys: Tensor, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:  # (...), (..., ·) each
    """One run after another."""
    return zip(*(t.reshape(-1, *t.shape[keys.ndim :]) for t in tensors), strict=True)


def fold_membership(keys: Tensor, members: int, x: Tensor) -> Tensor:  # (...), (..., l, d) -> (..., K, l)
    """True where row l belongs to the fold that member k does not see; replicates of a point stand in one fold.

    A member sees everything if its fold is empty or holds all rows.
    """
    rows = x.shape[-2]
    order = streams.permutation(streams.fold(keys, Purpose.FOLDS), rows)
    first = first_alike(x)
    later = first != torch.arange(rows, device=x.device)
    place = (order + rows * later).argsort(-1).argsort(-1)  # points are dealt out in turn, their replicates follow
    fold = (place % members).gather(-1, first)  # (..., l)
    unseen = fold[..., None, :] == torch.arange(members, device=keys.device)[:, None]
    return unseen & ~unseen.all(-1, keepdim=True)


def first_alike(x: Tensor) -> Tensor:  # (..., l, d) -> (..., l)
    """For every row the first row with the same features: itself, unless the point was measured before."""
    code = streams.digest(x.double())
    order = torch.argsort(code, dim=-1, stable=True)
    ordered = code.gather(-1, order)
    new = torch.ones_like(order, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    start = torch.where(new, torch.arange(order.shape[-1], device=x.device), 0).cummax(-1).values
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, start))


def one_hot(y: Tensor, classes: int) -> Tensor:  # (..., l) -> (..., l, classes) float64
    """Class numbers as unit vectors; a number that is no class is refused."""
    codes = y.long()
    wrong = (codes != y) | (codes < 0) | (codes >= classes)  # NaN differs from every number
    if bool(wrong.any()):
        bad = float(y[wrong][0])
        raise InputError(f"labels are whole numbers from 0 to {classes - 1}, one per class; got {bad:g}")
    return torch.nn.functional.one_hot(codes, classes).double()
