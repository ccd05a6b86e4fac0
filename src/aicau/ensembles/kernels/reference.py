"""The same two networks as batched PyTorch with autograd, on any device: used where there is no fused kernel, and what
these are checked against. All networks advance together; one that has finished keeps its parameters."""

from typing import Any

import torch
from torch import Tensor

from aicau.ensembles.kernels import pairs
from aicau.ensembles.kernels.settings import EmbeddingSettings, MLPSettings


def mlp_forward(parameters: Tensor, x: Tensor, settings: MLPSettings) -> Tensor:
    # (..., P), (..., n, d) -> (..., n), or (..., n, c) from the softmax head; leading dimensions broadcast
    """What each network predicts at each point: a value, a rate, or probabilities."""
    raw = mlp_outputs(parameters, x, settings)
    if settings.head == "softmax":
        return torch.softmax(raw, -1)
    return raw[..., 0].exp() if settings.head == "poisson" else raw[..., 0]


def mlp_outputs(parameters: Tensor, x: Tensor, settings: MLPSettings) -> Tensor:  # (..., n, c)
    """The last layer before the head."""
    for depth, block in enumerate(settings.blocks(parameters, x.shape[-1])):
        x = x if depth == 0 else x.relu()
        x = x @ block[..., :-1].mT + block[..., None, :, -1]
    return x


def point_loss(raw: Tensor, target: Tensor, head: str) -> Tensor:  # (..., n, c) twice -> (..., n)
    """Squared error, cross-entropy, or the Poisson loss of a logarithmic rate."""
    if head == "softmax":
        return -(target * torch.log_softmax(raw, -1)).sum(-1)
    raw, target = raw[..., 0], target[..., 0]
    return raw.exp() - target * raw if head == "poisson" else (raw - target) ** 2


class _Adam:
    """Adam with an L2 term over a batch of rows, stepping only the rows still active."""

    def __init__(self, parameters: Tensor, settings: Any) -> None:
        self.m, self.v, self.settings = torch.zeros_like(parameters), torch.zeros_like(parameters), settings
        self.step = torch.zeros(*parameters.shape[:-1], 1, dtype=torch.double, device=parameters.device)

    def update(self, parameters: Tensor, gradient: Tensor, active: Tensor) -> Tensor:
        s, (b1, b2) = self.settings, self.settings.betas
        active = active[..., None]
        self.step = self.step + active
        gradient = gradient + s.weight_decay * parameters
        self.m = torch.where(active, b1 * self.m + (1 - b1) * gradient, self.m)
        self.v = torch.where(active, b2 * self.v + (1 - b2) * gradient**2, self.v)
        first, second = (1 - b ** self.step.clamp_min(1) for b in (b1, b2))
        scale = (self.v / second.to(self.v)).sqrt() + 1e-8
        moved = parameters - (s.learning_rate / first).to(self.m) * self.m / scale
        return torch.where(active, moved, parameters)


def train_mlp(
    x: Tensor, y: Tensor, weights: Tensor, parameters: Tensor, settings: MLPSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """All networks together; shapes as in `kernels.train_mlp`."""
    y = y[..., None] if y.ndim == 2 else y
    best = torch.full(weights.shape[:-1], torch.inf, device=x.device)
    waited, epochs = torch.zeros_like(best, dtype=torch.long), torch.zeros_like(best, dtype=torch.long)
    losses, active = torch.zeros_like(best), torch.ones_like(best, dtype=torch.bool)
    adam = _Adam(parameters, settings)
    share = weights / weights.sum(-1, keepdim=True)
    for _ in range(settings.max_epochs):
        epochs += active
        leaf = parameters.detach().requires_grad_()
        loss = (share * point_loss(mlp_outputs(leaf, x[:, None], settings), y[:, None], settings.head)).sum(-1)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        loss = loss.detach()
        parameters = adam.update(parameters, gradient, active & torch.isfinite(loss))
        losses = torch.where(active, loss, losses)
        active = active & torch.isfinite(loss)
        better = loss < best - settings.min_delta
        best = torch.where(better, loss, best)
        waited = torch.where(better, 0, waited + 1)
        active = active & (waited <= settings.patience)
        if not bool(active.any()):
            break
    return parameters.detach(), epochs, losses


def embed(parameters: Tensor, running: Tensor, x: Tensor, settings: EmbeddingSettings) -> Tensor:
    # (..., P), (..., 2, units), (..., n, p) -> (..., n, width)
    """ψ with running statistics, as used after training."""
    return _embed(parameters, x, settings, running)[0]


def _embed(
    parameters: Tensor,
    x: Tensor,
    settings: EmbeddingSettings,
    running: Tensor | None,
    valid: Tensor | None = None,  # (..., n): how often a point counts in batch statistics
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """ψ, and the batch statistics of each hidden layer where no running ones are given."""
    statistics = []
    at = unit = 0
    *inner, (o, i) = settings.layers(x.shape[-1])
    for outs, ins in inner:
        weight = parameters[..., at : at + outs * ins].unflatten(-1, (outs, ins))
        at += outs * ins
        gain, shift = parameters[..., None, at : at + outs], parameters[..., None, at + outs : at + 2 * outs]
        at += 2 * outs
        x = x @ weight.mT
        if running is None:
            assert valid is not None
            share = valid[..., None] / valid.sum(-1).clamp_min(1)[..., None, None]
            mean = (x * share).sum(-2, keepdim=True)
            variance = ((x - mean) ** 2 * share).sum(-2, keepdim=True)
            statistics.append((mean[..., 0, :].detach(), variance[..., 0, :].detach()))
        else:
            mean, variance = running[..., :1, unit : unit + outs], running[..., 1:, unit : unit + outs]
        unit += outs
        x = ((x - mean) / (variance + settings.epsilon).sqrt() * gain + shift).relu()
        if running is None:
            x = torch.nn.functional.dropout(x, settings.dropout)
    block = parameters[..., at:].unflatten(-1, (o, i + 1))
    return x @ block[..., :-1].mT + block[..., None, :, -1], statistics


def pair_loss(psi: Tensor, bias: Tensor, pairs: Tensor) -> Tensor:  # (N, l, h), (N, l), (N, l, l) -> (N,)
    """Mean over the pairs of the lower triangle of (ψᵢᵀψⱼ − δᵢδⱼ)²."""
    pairs = torch.tril(pairs).to(psi)
    error = (psi @ psi.mT - bias[..., :, None] * bias[..., None, :]) ** 2
    return (error * pairs).sum((-1, -2)) / pairs.sum((-1, -2)).clamp_min(1)


def train_embedding(
    x: Tensor,
    bias: Tensor,
    split: Tensor,
    parameters: Tensor,
    running: Tensor,
    seeds: Tensor,
    settings: EmbeddingSettings,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All embeddings together; shapes as in `kernels.train_embedding`, running (N, 2, units)."""
    valid = split.diagonal(dim1=-2, dim2=-1) > 0
    fit = split == 1
    check = torch.where((split == 2).any(-1).any(-1)[:, None, None], split == 2, fit)
    rank, steps, moves = pairs.order(split, seeds, settings)
    best = torch.full(steps.shape, torch.inf, device=x.device)
    waited, epochs = torch.zeros_like(steps), torch.zeros_like(steps)
    active = torch.ones_like(best, dtype=torch.bool)
    best_parameters, best_running = parameters.clone(), running.clone()
    adam = _Adam(parameters, settings)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(int(seeds[0]))
        for epoch in range(settings.max_epochs):
            epochs += active
            batch = pairs.batches(rank, steps, moves[:, epoch])
            for step in range(int(steps.max())):
                chosen = batch == step
                twice = chosen.sum(-1) + chosen.diagonal(dim1=-2, dim2=-1).long()  # how often a point stands in it
                weight = (valid.long() if settings.batch_size is None else twice).to(x)
                going = active & (step < steps)
                leaf = parameters.detach().requires_grad_()
                psi, statistics = _embed(leaf, x, settings, None, weight)
                loss = pair_loss(psi, bias, chosen)
                (gradient,) = torch.autograd.grad(loss.sum(), leaf)
                active = active & (~going | torch.isfinite(loss.detach()))
                going = going & active
                parameters = adam.update(parameters, gradient, going)
                means, variances = (torch.cat(part, -1) for part in zip(*statistics, strict=True))
                inputs = weight.sum(-1, keepdim=True)
                now = torch.stack([means, variances * (inputs / (inputs - 1).clamp_min(1))], 1)
                moved = (1 - settings.momentum) * running + settings.momentum * now
                running = torch.where(going[:, None, None], moved, running)
            with torch.no_grad():
                loss = pair_loss(embed(parameters, running, x, settings), bias, check)
            better = active & (loss < best)
            best = torch.where(better, loss, best)
            best_parameters = torch.where(better[:, None], parameters, best_parameters)
            best_running = torch.where(better[:, None, None], running, best_running)
            waited = torch.where(better, 0, waited + 1)
            active = active & (waited < settings.patience)
            if not bool(active.any()):
                break
    return best_parameters.detach(), best_running, epochs, best


def trees_mean(
    x: Tensor, roots: Tensor, feature: Tensor, threshold: Tensor, left: Tensor, right: Tensor, value: Tensor
) -> Tensor:  # (n,)
    """Mean over trees of the value of the leaf that each point falls into; shapes as in `kernels.trees_mean`."""
    total = torch.zeros(x.shape[0], dtype=torch.double, device=x.device)
    for root in roots:
        node = root.expand(x.shape[0])
        while bool((left[node] >= 0).any()):
            asked = x.gather(-1, feature[node].clamp_min(0)[:, None])[:, 0]
            below = torch.where(asked.double() <= threshold[node], left[node], right[node])
            node = torch.where(left[node] >= 0, below, node)
        total = total + value[node]
    return total / len(roots)
