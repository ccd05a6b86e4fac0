"""PyTorch modules and posteriors of BoTorch or GPyTorch as an ensemble: trained run by run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aicau.core import checks, streams
from aicau.core.errors import InputError, TrainingError
from aicau.core.streams import Purpose
from aicau.ensembles.base import check_rows, fold_membership, one_hot
from aicau.ensembles.scikit import FittedFunctions, Function, seeds

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs of a module, targets (l, c) -> a number


@dataclass(frozen=True)
class Modules:
    """Members made by a factory of `torch.nn.Module`, trained in full batch with Adam on all folds but their own.

    Parameters
    ----------
    factory : callable
        Number of features -> a new module with one output.
    members, epochs : int
    learning_rate : float

    Examples
    --------
    >>> import torch
    >>> from aicau import Modules, streams
    >>> ensemble = Modules(lambda d: torch.nn.Linear(d, 1), members=2, epochs=5)
    >>> x = torch.rand(1, 10, 3)
    >>> ensemble.fit(x, x.sum(-1), streams.runs(0, 1)).predict(x[0]).shape
    torch.Size([1, 2, 10])
    """

    factory: Callable[[int], nn.Module]
    members: int = 5
    epochs: int = 500
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")
        checks.positive(self.epochs, "epochs")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the members of every run, one after another."""
        check_rows(x, y, keys)

        def loss(output: Tensor, target: Tensor) -> Tensor:
            return nn.functional.mse_loss(output.reshape(-1), target[:, 0])

        return _train(self, x, y[..., None], keys, loss, lambda output: output.reshape(-1))


@dataclass(frozen=True)
class ClassModules:
    """Members made by a factory of `torch.nn.Module` with one output (a logit) per class, trained by cross-entropy.

    Parameters
    ----------
    factory : callable
        Number of features -> a new module with `classes` outputs.
    classes, members, epochs : int
    learning_rate : float
    smoothing : float
        Share of every label that is moved to the other classes.

    Examples
    --------
    >>> import torch
    >>> ClassModules(lambda d: torch.nn.Linear(d, 3), classes=3).members
    5
    """

    factory: Callable[[int], nn.Module]
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
        """Train the members of every run, one after another."""
        check_rows(x, y, keys)

        def loss(raw: Tensor, target: Tensor) -> Tensor:
            if raw.shape != target.shape:
                wanted, got = tuple(target.shape), tuple(raw.shape)
                raise InputError(f"a module must give one output per class, shape {wanted}; got {got}")
            return nn.functional.cross_entropy(raw, target, label_smoothing=self.smoothing)

        return _train(self, x, one_hot(y, self.classes), keys, loss, lambda raw: torch.softmax(raw.double(), -1))


def _train(
    settings: Modules | ClassModules,
    x: Tensor,  # (..., l, d)
    targets: Tensor,  # (..., l, c)
    keys: Tensor,  # (...)
    loss: Loss,
    answer: Callable[[Tensor], Tensor],  # outputs -> predictions
) -> FittedFunctions:
    """Members of every run, one after another, in full batch with Adam on all folds but their own."""
    unseen = fold_membership(keys, settings.members, x)
    numbers = seeds(keys, settings.members).reshape(-1, settings.members)
    flat = [t.reshape(-1, *t.shape[-2:]) for t in (x, targets, unseen)]

    def one(x: Tensor, y: Tensor, seed: int) -> Function:
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
                raise TrainingError("training diverged: the loss of a module is not finite; scale the target or x")
        module.eval()

        @torch.no_grad()
        def function(at: Tensor) -> Tensor:
            return answer(module(at.to(kind)))

        return function

    runs = [
        tuple(one(a[~out[k]], b[~out[k]], int(numbers[run, k])) for k in range(settings.members))
        for run, (a, b, out) in enumerate(zip(*flat, strict=True))
    ]
    return FittedFunctions(tuple(runs), tuple(targets.shape[:-2]), unseen)


@dataclass(frozen=True)
class PosteriorSamples:
    """Samples of a Gaussian-process posterior as members (BoTorch or GPyTorch).

    Each member is one joint sample over the points it is asked for, with the same base numbers each time, so all points
    must be asked for in one call.

    Parameters
    ----------
    fit_model : callable
        x (l, d), y (l, 1) -> a fitted model: one with `posterior(x)` (BoTorch), or one that gives a multivariate normal
        when called with x (GPyTorch, in eval mode).
    members : int

    Examples
    --------
    >>> PosteriorSamples(lambda x, y: None, members=8).members
    8
    """

    fit_model: Callable[[Tensor, Tensor], Any]
    members: int = 16

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> "FittedPosterior":
        """Fit the model of every run, one after another."""
        check_rows(x, y, keys)
        rows = y.shape[-1]
        pairs = zip(x.reshape(-1, rows, x.shape[-1]), y.reshape(-1, rows), strict=True)
        models = tuple(self.fit_model(a.double(), b.double()[:, None]) for a, b in pairs)
        unseen = torch.zeros(*y.shape[:-1], self.members, rows, dtype=torch.bool, device=x.device)
        return FittedPosterior(models, streams.fold(keys, Purpose.WEIGHTS), unseen)


@dataclass(frozen=True)
class FittedPosterior:
    """One fitted model per run."""

    models: tuple[Any, ...]
    keys: Tensor  # (...)
    unseen: Tensor  # (..., K, l); every sample has seen every row

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Joint samples over the points."""
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
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(covariance.dtype).tiny)
    eye = torch.eye(covariance.shape[0], dtype=covariance.dtype, device=covariance.device)
    for power in range(-12, -2):
        factor, failed = torch.linalg.cholesky_ex(covariance + scale * 10.0**power * eye)
        if not bool(failed):
            return factor
    raise TrainingError("the covariance of a posterior is not positive definite; check the model")
