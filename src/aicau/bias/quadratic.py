"""Quadratic estimation: Q(x, x*) = ψ(x)ᵀψ(x*) completes Δ from the products δᵢδⱼ of measured pairs (Eq. symmetricnn).

Q is trained on the Gram matrix of ψ over the measured points: the same sum over the pairs of the lower triangle
(diagonal included) with a network that sees l points instead of l² pairs, all pairs at once or in mini-batches
(`aicau.ensembles.kernels.pairs`). 15% of the pairs are for validation, and the epoch that did best on them is used.

Measured entries keep their observed values: with Ψ over the pool and Ψ_m its rows at measured points (zero elsewhere),
Δ̂ = ΨΨᵀ − Ψ_mΨ_mᵀ + δ_mδ_mᵀ, which stays a signed factor of 2h + 1 columns.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from aicau.bias.base import Belief, BiasEstimator, Evidence, place
from aicau.core import streams
from aicau.core.errors import InputError, unknown
from aicau.core.omega import Omega
from aicau.core.streams import Purpose
from aicau.ensembles import kernels
from aicau.ensembles.kernels import EmbeddingSettings

PRINTED = (0.999, 0.9)  # betas: very likely a swap (docs/reproduction.md)
PRESETS = {
    "learns": EmbeddingSettings(batch_size=128),
    "printed": EmbeddingSettings(batch_size=128, betas=PRINTED),
    "full-batch": EmbeddingSettings(betas=PRINTED),
}


@dataclass(frozen=True)
class Quadratic(BiasEstimator):
    """Q = ψᵀψ completes Δ from products of residuals (the paper's quadratic estimation).

    Parameters
    ----------
    settings : EmbeddingSettings
        Layers and training of ψ; the betas of Adam are the usual ones, `Quadratic.paper()` has them as printed.

    Examples
    --------
    >>> from aicau import Quadratic
    >>> Quadratic.paper("printed").settings.betas
    (0.999, 0.9)
    """

    settings: EmbeddingSettings = field(default_factory=EmbeddingSettings)

    @classmethod
    def paper(cls, preset: str = "learns") -> "Quadratic":
        """As in the paper, with mini-batches: "printed" has its betas (0.999, 0.9), "learns" the usual ones, and
        "full-batch" the printed ones without mini-batches."""
        if preset not in PRESETS:
            raise unknown("preset", preset, list(PRESETS))
        return cls(PRESETS[preset])

    def fit(self, evidence: Evidence) -> "Fitted":
        """Train ψ of every run on the products of residuals at its measured points."""
        side = evidence.side_information().float()
        seen, residual = evidence.residuals()
        rows = side.take_along_dim(seen.index[..., None], -2)
        keys = streams.fold(evidence.keys, Purpose.COBIAS).reshape(-1)
        split = split_pairs(keys, seen.valid.reshape(-1, seen.valid.shape[-1]), self.settings.validation)
        target = residual.reshape(split.shape[:-1])
        parameters, running, epochs, losses = kernels.train_embedding(
            rows.reshape(-1, *rows.shape[-2:]),
            target,
            split,
            initial_parameters(keys, side.shape[-1], self.settings),
            streams.fold(keys, 3),
            self.settings,
        )
        return Fitted(parameters, running, epochs, losses, split, target)

    def estimate(self, evidence: Evidence, fitted: "Fitted | None" = None) -> Omega:
        fitted = evidence.learned(self, lambda: self.fit(evidence)) if fitted is None else fitted
        side = evidence.side_information().float()
        seen, residual = evidence.residuals()
        lead, n = side.shape[:-2], side.shape[-2]
        psi = kernels.embed(fitted.parameters, fitted.running, side.reshape(-1, *side.shape[-2:]), self.settings)
        # A loss that is not finite shows in the estimate, and nothing waits for it here.
        psi = torch.where(torch.isfinite(fitted.losses)[:, None, None], psi, torch.nan)
        psi = psi.reshape(*lead, n, -1)
        observed = place(residual.float(), seen, psi.new_zeros(*lead, n))
        measured = place(torch.ones_like(residual).float(), seen, psi.new_zeros(*lead, n)) > 0
        model = Omega(psi) - Omega(torch.where(measured[..., None], psi, 0.0))
        return model + Omega(observed[..., None])

    def believe(self, evidence: Evidence) -> Belief:
        raise InputError(
            f"quadratic completes a matrix of products of biases, which {evidence.task.name} does not have;"
            " use direct or posterior"
        )


@dataclass(frozen=True)
class Fitted:
    """ψ of every run after training, and what it was trained on."""

    parameters: Tensor  # (N, P)
    running: Tensor  # (N, 2, units)
    epochs: Tensor  # (N,)
    losses: Tensor  # (N,) least validation loss
    split: Tensor  # (N, l, l)
    target: Tensor  # (N, l) residuals

    def baselines(self) -> tuple[Tensor, Tensor]:  # (N,) twice
        """Validation loss of predicting Δ = 0, and of predicting the mean of the training pairs."""
        products = (self.target[..., :, None] * self.target[..., None, :]).double()
        fit, held = (torch.tril(self.split == kind).double() for kind in (1, 2))
        held = torch.where((held.sum((-1, -2)) > 0)[:, None, None], held, fit)
        mean = (products * fit).sum((-1, -2)) / fit.sum((-1, -2))
        squares = [((products - m[:, None, None]) ** 2 * held).sum((-1, -2)) for m in (0 * mean, mean)]
        return squares[0] / held.sum((-1, -2)), squares[1] / held.sum((-1, -2))


def split_pairs(keys: Tensor, valid: Tensor, share: float) -> Tensor:  # (N,), (N, l) -> (N, l, l)
    """0 where there is no pair, 1 for training, 2 for validation: a random share of the lower triangle, mirrored."""
    l = valid.shape[-1]
    pairs = torch.tril(valid[:, :, None] & valid[:, None, :])
    draws = torch.where(pairs, streams.uniform(streams.fold(keys, 1), l, l), 2.0).flatten(1)
    held = torch.floor(pairs.sum((-1, -2)) * share + 0.5).long()
    rank = draws.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True)
    split = torch.where(rank < held[:, None], 2, 1).reshape(pairs.shape) * pairs
    return split + torch.tril(split, -1).mT


def initial_parameters(keys: Tensor, inputs: int, settings: EmbeddingSettings) -> Tensor:  # (N, P)
    """Linear layers uniform in ±1/√inputs, γ = 1, β = 0, as PyTorch starts."""
    draws = 2 * streams.uniform(streams.fold(keys, 2), settings.parameters(inputs)) - 1
    *inner, (o, i) = settings.layers(inputs)
    blocks = []
    for outs, ins in inner:
        blocks += [(outs * ins, ins**-0.5, 0.0), (outs, 0.0, 1.0), (outs, 0.0, 0.0)]
    blocks.append((o * (i + 1), i**-0.5, 0.0))
    scale = torch.cat([torch.full((count,), s) for count, s, _ in blocks]).to(draws)
    shift = torch.cat([torch.full((count,), b) for count, _, b in blocks]).to(draws)
    return (draws * scale + shift).float()
