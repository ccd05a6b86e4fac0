"""F_k: `fit` gives a fitted ensemble, whose `predict` gives one function per member, (..., K, n)."""

from typing import Protocol

import torch
from torch import Tensor

from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.streams import Purpose


class Fitted(Protocol):
    """A distribution of fitted functions."""

    @property
    def unseen(self) -> Tensor:  # (..., K, l)
        """True where a member was not trained on a row: its residual there is out of fold."""

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Every member at every point."""

    def __getitem__(self, run: int | slice | list[int]) -> "Fitted":
        """The ensembles of some runs (along the first leading dimension)."""


class Ensemble(Protocol):
    """Parameters only; `fit` computes and returns something new."""

    def fit(
        self,
        x: Tensor,  # (..., l, d)
        y: Tensor,  # (..., l)
        keys: Tensor,  # (...) one random stream per run
    ) -> Fitted: ...


def check_rows(x: Tensor, y: Tensor, keys: Tensor) -> None:
    """Shapes that belong together, or one sentence."""
    if x.ndim < 2 or x.shape[:-1] != y.shape or keys.shape != y.shape[:-1]:
        shapes = tuple(x.shape), tuple(y.shape), tuple(keys.shape)
        raise InputError(f"an ensemble is fitted on x (..., l, d), y (..., l) and keys (...); got shapes {shapes}")
    if y.shape[-1] == 0:
        raise InputError("an ensemble needs at least one measurement; got none")


def fold_membership(keys: Tensor, members: int, rows: int) -> Tensor:  # (...) -> (..., K, l)
    """True where row l belongs to the fold that member k does not see: each member trains on the other K − 1 folds.

    With fewer rows than members some folds are empty, and their members see everything; a member that would see
    nothing (one row only, or a single member) sees everything too.
    """
    order = streams.permutation(streams.fold(keys, Purpose.FOLDS), rows)
    fold = order % members  # (..., l)
    unseen = fold[..., None, :] == torch.arange(members, device=keys.device)[:, None]
    return unseen & ~unseen.all(-1, keepdim=True)
