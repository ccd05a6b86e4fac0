"""Adaptors: models people already have, behind the same `fit` then `predict → (..., K, n)`.

They train run by run and are as fast as the model they wrap.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from aicau.core import checks, streams
from aicau.core.errors import InputError, TrainingError
from aicau.core.streams import Purpose
from aicau.ensembles.base import check_rows, fold_membership


@dataclass(frozen=True)
class FittedFunctions:
    """Fitted members as plain functions of (n, d) arrays, one list per run."""

    functions: tuple[tuple[Callable[[Tensor], Tensor], ...], ...]  # runs × K
    lead: tuple[int, ...]
    unseen: Tensor  # (..., K, l)

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n); (..., K, n, c) for classes
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
    """scikit-learn regressors as members, each cloned and trained on the folds but its own."""

    estimators: Sequence[Any]

    def __post_init__(self) -> None:
        if len(self.estimators) == 0:
            raise InputError("an ensemble needs at least one member; got none")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)
        unseen = fold_membership(keys, len(self.estimators), x)
        numbers = seeds(keys, len(self.estimators))
        runs = []
        for a, b, out, seed in each_run(x, y, unseen, numbers):
            members = []
            for k, estimator in enumerate(self.estimators):
                model = seeded(copy.deepcopy(estimator), int(seed[k]))
                rows = ~out[k]
                members.append(_function(model.fit(a[rows], b[rows])))
            runs.append(tuple(members))
        return FittedFunctions(tuple(runs), y.shape[:-1], unseen)


@dataclass(frozen=True)
class Members:
    """One scikit-learn regressor that has members of its own: a forest, extra trees, bagging.

    Which rows a member saw is read from `estimators_samples_` (bagging, and forests since scikit-learn 1.4); without it
    every row counts as seen.
    """

    estimator: Any

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)
        runs, unseen = [], []
        for a, b, _, seed in each_run(x, y, y, seeds(keys, 1)):
            model = seeded(copy.deepcopy(self.estimator), int(seed[0])).fit(a, b)
            members = getattr(model, "estimators_", None)
            if members is None or len(members) == 0:
                raise InputError(
                    f"{type(model).__name__} has no members after fitting; use Regressors for a list of models"
                )
            columns = getattr(model, "estimators_features_", [slice(None)] * len(members))
            members = list(np.asarray(members, dtype=object).ravel())
            runs.append(tuple(_function(m, c) for m, c in zip(members, columns, strict=True)))
            out = torch.zeros(len(members), len(b), dtype=torch.bool)
            for k, rows in enumerate(getattr(model, "estimators_samples_", [])):
                out[k] = True
                out[k, torch.as_tensor(np.asarray(rows)).long()] = False
            unseen.append(out)
        shape = (*y.shape[:-1], *unseen[0].shape)
        return FittedFunctions(tuple(runs), y.shape[:-1], torch.stack(unseen).reshape(shape).to(x.device))


@dataclass(frozen=True)
class Modules:
    """Members made by a factory of `torch.nn.Module`, trained in full batch with Adam on the folds but their own."""

    factory: Callable[[int], nn.Module]  # number of features -> a new module with one output
    members: int = 5
    epochs: int = 500
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")
        checks.positive(self.epochs, "epochs")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        check_rows(x, y, keys)

        def loss(output: Tensor, target: Tensor) -> Tensor:
            return nn.functional.mse_loss(output.reshape(-1), target[:, 0])

        return train_module(self, x, y[..., None], keys, loss, lambda output: output.reshape(-1))


class ModuleSettings(Protocol):
    """How modules are made and trained."""

    @property
    def factory(self) -> Callable[[int], nn.Module]: ...
    @property
    def members(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...


def train_module(
    settings: ModuleSettings,
    x: Tensor,  # (..., l, d)
    targets: Tensor,  # (..., l, c)
    keys: Tensor,  # (...)
    loss: Callable[[Tensor, Tensor], Tensor],  # outputs of a module, targets (l, c) -> a number
    answer: Callable[[Tensor], Tensor],  # outputs -> predictions
) -> FittedFunctions:
    """Members of every run, one after another, in full batch with Adam on the folds but their own."""
    *lead, _, _ = targets.shape
    unseen = fold_membership(keys, settings.members, x)
    numbers = seeds(keys, settings.members).reshape(-1, settings.members)
    flat = [t.reshape(-1, *t.shape[-2:]) for t in (x, targets, unseen)]

    def one(x: Tensor, y: Tensor, seed: int) -> Callable[[Tensor], Tensor]:
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            torch.manual_seed(seed)
            module = settings.factory(x.shape[-1]).to(x.device)
            kind = next((p.dtype for p in module.parameters()), torch.float32)
            optimiser = torch.optim.Adam(module.parameters(), settings.learning_rate)
            x, y = x.to(kind), y.to(kind)
            module.train()
            for _ in range(settings.epochs):
                optimiser.zero_grad()
                value = loss(module(x), y)
                value.backward()
                optimiser.step()
            if not bool(torch.isfinite(value.detach())):
                raise TrainingError(
                    "training diverged: the loss of a module is not finite; scale the target or the rate"
                )
        module.eval()

        @torch.no_grad()
        def function(at: Tensor) -> Tensor:
            return answer(module(at.to(kind)))

        return function

    runs = [
        tuple(one(a[~out[k]], b[~out[k]], int(numbers[run, k])) for k in range(settings.members))
        for run, (a, b, out) in enumerate(zip(*flat, strict=True))
    ]
    return FittedFunctions(tuple(runs), tuple(lead), unseen)


@dataclass(frozen=True)
class PosteriorSamples:
    """Samples of a Gaussian-process posterior as members (BoTorch or GPyTorch).

    `fit_model(x, y)` returns a fitted model: one with `posterior(x)` (BoTorch), or one that gives a multivariate normal
    when called with x (GPyTorch, in eval mode). Each member is one joint sample over the points it is asked for, with
    the same base numbers each time, so all points must be asked for in one call.
    """

    fit_model: Callable[[Tensor, Tensor], Any]  # (l, d), (l, 1) -> model
    members: int = 16

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> "FittedPosterior":
        check_rows(x, y, keys)
        rows = y.shape[-1]
        pairs = zip(x.reshape(-1, rows, x.shape[-1]), y.reshape(-1, rows), strict=True)
        models = tuple(self.fit_model(a.double(), b.double()[:, None]) for a, b in pairs)
        unseen = torch.zeros(*y.shape[:-1], self.members, rows, dtype=torch.bool, device=x.device)
        return FittedPosterior(models, streams.fold(keys, Purpose.WEIGHTS), unseen)


@dataclass(frozen=True)
class FittedPosterior:
    models: tuple[Any, ...]
    keys: Tensor  # (...)
    unseen: Tensor  # (..., K, l); every sample has seen every row

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        lead, members, n = self.keys.shape, self.unseen.shape[-2], x.shape[-2]
        points = x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]).double()
        base = streams.normal(self.keys.reshape(-1), members, n)  # (runs, K, n)
        runs = []
        for model, at, z in zip(self.models, points, base, strict=True):
            posterior = model.posterior(at) if hasattr(model, "posterior") else model(at)
            normal = getattr(posterior, "distribution", posterior)
            runs.append(normal.mean.reshape(-1) + z.to(at) @ _cholesky(normal.covariance_matrix.reshape(n, n)).mT)
        return torch.stack(runs).reshape(*lead, members, n)

    def __getitem__(self, run: int | slice | list[int]) -> "FittedPosterior":
        """The ensembles of some runs (along the first leading dimension)."""
        place = torch.arange(len(self.models)).reshape(self.keys.shape)[run]
        return FittedPosterior(tuple(self.models[i] for i in place.flatten()), self.keys[run], self.unseen[run])


def _cholesky(covariance: Tensor) -> Tensor:  # (n, n) -> (n, n)
    """Cholesky factor, with as little added to the diagonal as rounding asks for."""
    scale = covariance.diagonal().mean()
    scale = torch.where(scale > 0, scale, 1.0)
    eye = torch.eye(covariance.shape[0], dtype=covariance.dtype, device=covariance.device)
    for power in range(-12, -2):
        factor, failed = torch.linalg.cholesky_ex(covariance + scale * 10.0**power * eye)
        if not bool(failed):
            return factor
    raise TrainingError("the covariance of a posterior is not positive definite; check the model")


def seeds(keys: Tensor, members: int) -> Tensor:  # (..., K) non-negative 31-bit numbers
    return streams.bits(streams.fold(keys, Purpose.WEIGHTS), members) & 0x7FFFFFFF


def seeded(model: Any, seed: int) -> Any:
    """Set `random_state` where the model has one that was left open."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    if "random_state" in parameters and parameters["random_state"] is None:
        model.set_params(random_state=seed)
    return model


def each_run(x: Tensor, y: Tensor, unseen: Tensor, seeds: Tensor) -> list[tuple[Any, Any, Any, Any]]:
    """NumPy views of one run after another."""
    rows = y.shape[-1]
    flat = (
        x.reshape(-1, rows, x.shape[-1]),
        y.reshape(-1, rows),
        unseen.reshape(-1, *unseen.shape[y.ndim - 1 :]),
        seeds.reshape(-1, seeds.shape[-1]),
    )
    return list(zip(*(t.detach().cpu().numpy() for t in flat), strict=True))


def _function(model: Any, columns: Any = slice(None)) -> Callable[[Tensor], Tensor]:
    def function(at: Tensor) -> Tensor:
        return torch.as_tensor(np.asarray(model.predict(at.detach().cpu().numpy()[:, columns])).reshape(-1))

    return function
