"""PyTorch modules and posteriors of BoTorch or GPyTorch as an ensemble: trained run by run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from aicau.core import checks, streams
from aicau.core.errors import InputError, TrainingError, shown
from aicau.core.streams import Purpose
from aicau.ensembles.base import FittedFunctions, Function, check_rows, each_run, one_hot
from aicau.ensembles.scikit import fit_each


@dataclass(frozen=True)
class Modules:
    """Members made by a factory of `torch.nn.Module`, trained in full batch with Adam on all folds but their own.

    Parameters
    ----------
    factory : callable
        Number of features -> a new module with one output, or with one output (a logit) per class.
    members, epochs : int
    learning_rate : float
    classes : int
        0: values, trained by squared error; else labels are numbers from 0 to classes − 1, trained by cross-entropy.
    smoothing : float
        Share of every label that is moved to the other classes.

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
    classes: int = 0
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        for name in ("members", "epochs"):
            checks.positive(getattr(self, name), name)
        if self.classes:
            checks.positive(self.classes, "classes", 2)

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Train the members of every run, one after another."""
        targets = one_hot(y, self.classes) if self.classes else y[..., None]
        return fit_each(self.members, x, y, targets, keys, partial(self._train, []))

    def _train(  # (l, d), (l, c)
        self, made: list[nn.Module], member: int, x: Tensor, y: Tensor, seed: int
    ) -> Function:
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            torch.manual_seed(seed)
            module = self.factory(x.shape[-1])
            if not isinstance(module, nn.Module) or any(module is other for other in made):
                got = "the same one again" if isinstance(module, nn.Module) else shown(module)
                raise InputError(f"the factory of Modules makes a new torch.nn.Module each time; it gave {got}")
            made.append(module.to(x.device))
            kind = next((p.dtype for p in module.parameters()), torch.float32)
            optimiser = torch.optim.Adam(module.parameters(), self.learning_rate)
            x, y = x.to(kind), y.to(kind)
            module.train()
            for _ in range(self.epochs):
                optimiser.zero_grad()
                loss = self._loss(module(x), y)
                loss.backward()
                optimiser.step()
            if not bool(torch.isfinite(loss.detach())):
                raise TrainingError("training diverged: the loss of a module is not finite; scale the target or x")
        module.eval()

        @torch.no_grad()
        def function(at: Tensor) -> Tensor:
            raw = module(at.to(kind))
            return torch.softmax(raw.double(), -1) if self.classes else raw.reshape(-1)

        return function

    def _loss(self, raw: Tensor, target: Tensor) -> Tensor:
        if not self.classes:
            if raw.numel() != len(target):
                raise InputError(f"a module must give one number per row; for {len(target)} rows it gave {raw.numel()}")
            return nn.functional.mse_loss(raw.reshape(-1), target[:, 0])
        if raw.shape != target.shape:
            wanted, got = tuple(target.shape), tuple(raw.shape)
            raise InputError(f"a module must give one output per class, shape {wanted}; got {got}")
        return nn.functional.cross_entropy(raw, target, label_smoothing=self.smoothing)


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

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:
        """Fit the model of every run, one after another."""
        check_rows(x, y, keys)
        runs = each_run(keys, x, y, streams.fold(keys, Purpose.WEIGHTS))
        samples = tuple(
            Samples(self.fit_model(a.double(), b.double()[:, None]), key, self.members) for a, b, key in runs
        )
        unseen = torch.zeros(*keys.shape, self.members, y.shape[-1], dtype=torch.bool, device=x.device)
        return FittedFunctions(samples, unseen)  # every sample has seen every row


@dataclass(frozen=True)
class Samples:
    """Joint samples of a fitted model, for one run."""

    model: Any
    key: Tensor  # ()
    members: int

    @torch.no_grad()
    def __call__(self, at: Tensor) -> Tensor:  # (n, d) -> (K, n)
        at, n = at.double(), len(at)
        posterior = self.model.posterior(at) if hasattr(self.model, "posterior") else self.model(at)
        normal = getattr(posterior, "distribution", posterior)
        root = _cholesky(normal.covariance_matrix.reshape(n, n))
        return normal.mean.reshape(-1) + streams.normal(self.key, self.members, n).to(at) @ root.mT


def _cholesky(covariance: Tensor) -> Tensor:  # (n, n) -> (n, n)
    """Cholesky factor, with as little added to the diagonal as rounding asks for."""
    scale = covariance.diagonal().mean().clamp_min(torch.finfo(covariance.dtype).tiny)
    eye = torch.eye(covariance.shape[0], dtype=covariance.dtype, device=covariance.device)
    for power in range(-12, -2):
        factor, failed = torch.linalg.cholesky_ex(covariance + scale * 10.0**power * eye)
        if not bool(failed):
            return factor
    raise TrainingError("the covariance of a posterior is not positive definite; check the model")
