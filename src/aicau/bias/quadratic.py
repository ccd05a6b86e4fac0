"""Quadratic estimation: Q(x, x*) = ψ(x)ᵀψ(x*) completes Δ from the products δᵢδⱼ of measured pairs (Eq. symmetricnn).

Q is trained on the Gram matrix of ψ over the measured points: the same sum over the pairs of the lower triangle
(diagonal included), in full batch, with a network that sees l points instead of l² pairs. Of the pairs 15% are kept
for validation, and the epoch that did best on them is used.

Measured entries keep their observed values: with Ψ over the pool and Ψ_m its rows at measured points (zero elsewhere),
Δ̂ = ΨΨᵀ − Ψ_mΨ_mᵀ + δ_mδ_mᵀ, which stays a signed factor of 2h + 1 columns.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from aicau.bias.base import Belief, Evidence, place
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
class Quadratic:
    """Q = ψᵀψ completes Δ from products of residuals (the paper's quadratic estimation).

    Parameters
    ----------
    settings : EmbeddingSettings
        Layers and training of ψ; the betas of Adam are the usual ones, `Quadratic.paper()` has them as printed.
    scaled : bool
        Train on residuals divided by their root mean square, which the paper leaves open.

    Examples
    --------
    >>> from aicau import Quadratic
    >>> Quadratic.paper("printed").settings.betas
    (0.999, 0.9)
    """

    waits: ClassVar[bool] = False
    settings: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    scaled: bool = False

    @classmethod
    def paper(cls, preset: str = "learns") -> "Quadratic":
        """As in the paper, with mini-batches: "printed" has its betas (0.999, 0.9), "learns" the usual ones, and
        "full-batch" the printed ones without mini-batches."""
        if preset not in PRESETS:
            raise unknown("preset", preset, list(PRESETS))
        return cls(PRESETS[preset])

    def estimate(self, evidence: Evidence) -> Omega:
        side = evidence.side_information().float()
        seen, residual = evidence.residuals()
        lead, (n, width) = side.shape[:-2], side.shape[-2:]
        size = torch.ones_like(residual[..., :1])
        if self.scaled:
            square = (residual**2).sum(-1, keepdim=True) / seen.valid.sum(-1, keepdim=True)
            size = torch.where(square > 0, square.sqrt(), 1.0)
        rows = side.gather(-2, seen.index[..., None].expand(*seen.index.shape, width))
        keys = streams.fold(evidence.keys, Purpose.COBIAS).reshape(-1)
        valid = seen.valid.reshape(-1, seen.valid.shape[-1])
        parameters, running, _, losses = kernels.train_embedding(
            rows.reshape(-1, *rows.shape[-2:]),
            (residual / size).reshape(valid.shape),
            split_pairs(keys, valid, self.settings.validation),
            initial_parameters(keys, width, self.settings),
            streams.fold(keys, 3),
            self.settings,
        )
        psi = kernels.embed(parameters, running, side.reshape(-1, n, width), self.settings)
        # A loss that is not finite shows in the estimate, and nothing waits for it here.
        psi = torch.where(torch.isfinite(losses)[:, None, None], psi, torch.nan)
        psi = psi.reshape(*lead, n, -1) * size[..., None].float()
        observed = place(residual.float(), seen, psi.new_zeros(*lead, n))
        measured = place(torch.ones_like(residual).float(), seen, psi.new_zeros(*lead, n)) > 0
        model = Omega(psi) - Omega(torch.where(measured[..., None], psi, 0.0))
        return model + Omega(observed[..., None])

    def believe(self, evidence: Evidence) -> Belief:
        raise InputError(
            f"quadratic completes a matrix of products of biases, which {evidence.task.name} does not have;"
            " use direct or posterior"
        )


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
