"""Training of the two small networks, by the fastest kernel there is for the device.

`cpu_*` (Numba) on the CPU, `cuda_*` (Triton) on CUDA, and `reference` (batched PyTorch) where either is missing or does
not take the shape. Same arguments, same meaning; tests hold each against `reference`.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau.core.runs import threads
from aicau.kernels import reference
from aicau.kernels.settings import HEADS, EmbeddingSettings, MLPSettings

__all__ = [
    "EmbeddingSettings",
    "MLPSettings",
    "embed",
    "mlp_forward",
    "rbf_sum",
    "train_embedding",
    "train_mlp",
    "trees_mean",
]


def _numba(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and importlib.util.find_spec("numba") is not None


@contextmanager
def _launch() -> Iterator[None]:
    """Numba on as many threads as PyTorch has. Its first launch sets OpenMP's threads, which are PyTorch's as well."""
    import numba

    with threads():
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
        yield


def _triton(tensor: Tensor) -> bool:
    return tensor.device.type == "cuda" and importlib.util.find_spec("triton") is not None


def mlp_forward(
    parameters: Tensor,  # (N, K, P)
    x: Tensor,  # (N or 1, n, d)
    settings: MLPSettings,
) -> Tensor:  # (N, K, n), or (N, K, n, c) from the softmax head
    """Every network at the points of its run."""
    if not _numba(x):
        return reference.mlp_forward(parameters, x[:, None], settings)
    from aicau.kernels import cpu_mlp

    arrays = [t.float().contiguous().numpy() for t in (x, parameters)]
    with _launch():
        out = cpu_mlp.predict_mlp(*arrays, np.array(settings.sizes(x.shape[-1])), HEADS.index(settings.head))
    return torch.from_numpy(out).mT if settings.head == "softmax" else torch.from_numpy(out)[..., 0, :]


def rbf_sum(
    at: Tensor,  # (n, p) float64
    x: Tensor,  # (l, p)
    weights: Tensor,  # (l,)
) -> Tensor:  # (n,)
    """Σ_i w_i exp(−½|at_j − x_i|²), never holding n × l numbers."""
    if not _numba(at):
        parts = at.split(max(1, 10**7 // max(1, x.shape[0])))
        return torch.cat([torch.exp(-0.5 * torch.cdist(part, x) ** 2) @ weights for part in parts])
    from aicau.kernels import cpu_rbf

    with _launch():
        return torch.from_numpy(cpu_rbf.rbf_sum(*(t.double().contiguous().numpy() for t in (at, x, weights))))


def trees_mean(
    x: Tensor,  # (n, d)
    roots: Tensor,  # (trees,) nodes that the trees start from
    feature: Tensor,  # (nodes,) that a node asks for
    threshold: Tensor,  # (nodes,) up to which a point goes left
    left: Tensor,  # (nodes,) −1 in a leaf
    right: Tensor,  # (nodes,)
    value: Tensor,  # (nodes,)
) -> Tensor:  # (n,)
    """Mean over trees of the value of the leaf that each point falls into; features in single precision."""
    x = x.float().contiguous()
    tensors = (x, roots, feature, threshold, left, right, value)
    if not _numba(x):
        return reference.trees_mean(*tensors)
    from aicau.kernels import cpu_trees

    with _launch():
        return torch.from_numpy(cpu_trees.trees_mean(*(tensor.contiguous().numpy() for tensor in tensors)))


def embed(
    parameters: Tensor,  # (N, P)
    running: Tensor,  # (N, 2, units)
    x: Tensor,  # (N, n, p)
    settings: EmbeddingSettings,
) -> Tensor:  # (N, n, width)
    """ψ of every run at its points, with running statistics."""
    if not _numba(x):
        return reference.embed(parameters, running, x, settings)
    from aicau.kernels import cpu_embedding

    arrays = [t.float().contiguous().numpy() for t in (x, parameters, running)]
    with _launch():
        return torch.from_numpy(cpu_embedding.embed(*arrays, _embedding_layout(x, settings), settings.epsilon))


def _embedding_layout(x: Tensor, settings: EmbeddingSettings) -> Any:
    return np.array([x.shape[-1], *settings.hidden, settings.width])


def train_mlp(
    x: Tensor,  # (N, l, d)
    y: Tensor,  # (N, l), or (N, l, c) for the softmax head: probabilities
    weights: Tensor,  # (N, K, l), 0 = not seen
    parameters: Tensor,  # (N, K, P)
    settings: MLPSettings,
) -> tuple[Tensor, Tensor, Tensor]:  # parameters (N, K, P), epochs (N, K), last loss (N, K)
    """Train N·K networks of F_k; each stops on its own. A loss that is not finite is returned as it is."""
    x, y, weights, parameters = (t.float().contiguous() for t in (x, y, weights, parameters))
    if settings.batch_size is not None:
        return reference.train_mlp(x, y, weights, parameters, settings)
    if _triton(x):
        from aicau.kernels import cuda_mlp

        if settings.head == "squared" and cuda_mlp.supports(settings, x.shape[-1], x.shape[1]):
            return cuda_mlp.train_mlp(x, y, weights, parameters, settings)
    if not _numba(x):
        return reference.train_mlp(x, y, weights, parameters, settings)
    from aicau.kernels import cpu_mlp

    parameters = parameters.clone()
    targets = y[..., None] if y.ndim == 2 else y
    arrays = [t.numpy() for t in (x, targets, weights, parameters)]
    with _launch():
        epochs, losses = cpu_mlp.train_mlp(
            *arrays,
            np.array(settings.sizes(x.shape[-1])),
            HEADS.index(settings.head),
            settings.learning_rate,
            *settings.betas,
            settings.weight_decay,
            settings.min_delta,
            settings.patience,
            settings.max_epochs,
        )
    return parameters, torch.from_numpy(epochs), torch.from_numpy(losses)


def train_embedding(
    x: Tensor,  # (N, l, p)
    bias: Tensor,  # (N, l)
    split: Tensor,  # (N, l, l) symmetric: 0 = no pair, 1 = training, 2 = validation
    parameters: Tensor,  # (N, P)
    seeds: Tensor,  # (N,)
    settings: EmbeddingSettings,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # parameters, running (N, 2, units), epochs (N,), validation loss (N,)
    """Train N embeddings ψ on their Gram matrices and keep each one's best epoch."""
    x, bias, parameters = (t.float().contiguous() for t in (x, bias, parameters))
    running = torch.zeros(x.shape[0], 2, sum(settings.hidden), device=x.device)
    running[:, 1] = 1
    if _triton(x):
        from aicau.kernels import cuda_embedding

        if cuda_embedding.supports(settings, x.shape[-1], x.shape[1]):
            return cuda_embedding.train_embedding(x, bias, split, parameters, running, seeds, settings)
    if not _numba(x):
        return reference.train_embedding(x, bias, split, parameters, running, seeds, settings)
    from aicau.kernels import cpu_embedding

    parameters = parameters.clone()
    arrays = [t.numpy() for t in (x, bias, split.to(torch.int8).contiguous(), parameters, running, seeds.contiguous())]
    with _launch():
        epochs, losses = cpu_embedding.train_embedding(
            *arrays,
            _embedding_layout(x, settings),
            settings.dropout,
            settings.learning_rate,
            *settings.betas,
            settings.weight_decay,
            settings.momentum,
            settings.epsilon,
            settings.patience,
            settings.max_epochs,
        )
    return parameters, running, torch.from_numpy(epochs), torch.from_numpy(losses)
