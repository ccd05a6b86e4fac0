"""Mini-batches of Q's training pairs: every pair once an epoch, in an order that is a pure function of the run's key.

Pairs have a random rank r of 0 … P − 1. In each epoch a pair stands at place (a·r + b) mod P, with new a and b, a and P
coprime; places are cut into batches of about equal size. Integers only, so all devices agree. A mini-batch of B pairs
has 2B inputs: in the statistics of batch normalisation a point counts as often as it stands in the batch.
"""

import torch
from torch import Tensor

from aicau.core import streams
from aicau.ensembles.kernels.settings import EmbeddingSettings

DRAWS = 8  # of a, the first that fits is taken; 1 where none does


def order(split: Tensor, seeds: Tensor, settings: EmbeddingSettings) -> tuple[Tensor, Tensor, Tensor]:
    # (N, l, l) as in `kernels.train_embedding`, (N,) -> rank (N, l, l), −1 = not for training; batches an epoch (N,);
    # a, b (N, epochs, 2)
    """Where the pairs start from, and what moves them in each epoch; one batch of all pairs where no size is set."""
    l = split.shape[-1]
    fit = torch.tril(split == 1)
    pairs = fit.sum((-1, -2))
    if settings.batch_size is None:
        rank = torch.where(split == 1, 0, -1)
        return rank, torch.ones_like(pairs), pairs.new_zeros(len(pairs), settings.max_epochs, 2)
    seeds = seeds.to(split.device)
    draws = torch.where(fit, streams.uniform(streams.fold(seeds, 1), l, l), 2.0).flatten(1)
    rank = draws.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True).reshape(split.shape)
    rank = torch.where(fit, rank, -1)
    rank = torch.maximum(rank, rank.mT)
    number = pairs.clamp_min(1)[:, None, None]
    bits = streams.bits(streams.fold(seeds, 2), settings.max_epochs, DRAWS + 1).remainder(number)
    fits = torch.gcd(bits[..., :DRAWS], number) == 1
    first = fits.byte().argmax(-1, keepdim=True)
    a = torch.where(fits.any(-1), bits.gather(-1, first)[..., 0], 1)
    steps = (-(-pairs // settings.batch_size)).clamp_min(1)
    return rank, steps, torch.stack([a, bits[..., DRAWS]], -1)


def batches(rank: Tensor, steps: Tensor, moves: Tensor) -> Tensor:  # (N, l, l), (N,), (N, 2) -> (N, l, l)
    """The mini-batch that each pair is in by the moves of an epoch; −1 where it is not for training."""
    number = torch.tril(rank >= 0).sum((-1, -2)).clamp_min(1)[:, None, None]
    place = (moves[:, 0, None, None] * rank + moves[:, 1, None, None]) % number
    return torch.where(rank >= 0, place * steps[:, None, None] // number, -1)
