"""Training of the two small networks by the fastest kernel there is for the device.

`cpu` and `cpu_embedding` (Numba) on the CPU, `cuda_mlp` (Triton) and `cuda_embedding` (CUDA C++) on a GPU, and
`reference` (batched PyTorch) where what they need is missing or a shape does not fit. All take the same arguments and
compute the same; tests compare each with `reference`, and `benchmarks/kernels.py` measures how much faster it is.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from aicau.core.errors import unknown
from aicau.core.runs import by_run, portion, single_blas
from aicau.ensembles.kernels import pairs, reference
from aicau.ensembles.kernels.settings import HEADS, EmbeddingSettings, MLPSettings

KINDS = ("fused", "reference")
_kind = "fused"


@contextmanager
def use(kind: str) -> Iterator[None]:
    """For a while, compute with the fused kernels where there are any (the default), or with batched PyTorch."""
    global _kind
    if kind not in KINDS:
        raise unknown("kind of kernel", kind, list(KINDS))
    before, _kind = _kind, kind
    try:
        yield
    finally:
        _kind = before


def _fused(tensor: Tensor, device: str, needs: str) -> bool:
    """Whether there is a kernel: the package it needs is installed, and nobody asked for the reference."""
    return _kind == "fused" and tensor.device.type == device and importlib.util.find_spec(needs) is not None


@contextmanager
def _launch() -> Iterator[None]:
    """Numba on as many threads as PyTorch has, and matrix products inside of each on one; PyTorch's are put back."""
    import numba

    with single_blas():
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
        yield


def mlp_forward(parameters: Tensor, x: Tensor, settings: MLPSettings) -> Tensor:
    # (N, K, P), (N or 1, n, d) -> (N, K, n), or (N, K, n, c) from the softmax head
    """Every network at the points of its run."""

    def forward(parameters: Tensor, x: Tensor) -> Tensor:
        parts = x.split(portion(x.device), -2)
        return torch.cat([reference.mlp_forward(parameters, some[:, None], settings) for some in parts], 2)

    return by_run(forward, parameters, x.expand(len(parameters), -1, -1), points=x.shape[-2])


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
    if not _fused(x, "cpu", "numba"):
        return reference.trees_mean(*tensors)
    from aicau.ensembles.kernels import cpu

    return torch.from_numpy(cpu.trees_mean(*(tensor.contiguous().numpy() for tensor in tensors)))


def embed(parameters: Tensor, running: Tensor, x: Tensor, settings: EmbeddingSettings) -> Tensor:
    # (N, P), (N, 2, units), (N, n, p) -> (N, n, width)
    """ψ of every run at its points, with running statistics."""

    def forward(parameters: Tensor, running: Tensor, x: Tensor) -> Tensor:
        parts = x.split(portion(x.device), -2)
        return torch.cat([reference.embed(parameters, running, some, settings) for some in parts], -2)

    return by_run(forward, parameters, running, x, points=x.shape[-2])


def train_mlp(
    x: Tensor,  # (N, l, d)
    y: Tensor,  # (N, l), or (N, l, c) for the softmax head: probabilities
    weights: Tensor,  # (N, K, l), 0 = not seen
    parameters: Tensor,  # (N, K, P)
    settings: MLPSettings,
) -> tuple[Tensor, Tensor, Tensor]:  # parameters (N, K, P), epochs (N, K), last loss (N, K)
    """Train N·K networks of F_k; each stops on its own. A loss that is not finite is returned as it is."""
    x, y, weights, parameters = (t.float().contiguous() for t in (x, y, weights, parameters))
    if _fused(x, "cuda", "triton"):
        from aicau.ensembles.kernels import cuda_mlp

        if settings.head == "squared" and cuda_mlp.supports(settings, x.shape[-1], x.shape[1]):
            return cuda_mlp.train_mlp(x, y, weights, parameters, settings)
    if not _fused(x, "cpu", "numba"):
        return reference.train_mlp(x, y, weights, parameters, settings)
    from aicau.ensembles.kernels import cpu

    parameters = parameters.clone()
    targets = y[..., None] if y.ndim == 2 else y
    arrays = [t.numpy() for t in (x, targets, weights, parameters)]
    s, sizes = settings, np.array(settings.sizes(x.shape[-1]))
    rates, stop = (s.learning_rate, *s.betas, s.weight_decay), (s.min_delta, s.patience, s.max_epochs)
    with _launch():
        epochs, losses = cpu.train_mlp(*arrays, sizes, HEADS.index(s.head), *rates, *stop)
    return parameters, torch.from_numpy(epochs), torch.from_numpy(losses)


def train_embedding(
    x: Tensor,  # (N, l, p)
    bias: Tensor,  # (N, l)
    split: Tensor,  # (N, l, l) symmetric: 0 = no pair, 1 = training, 2 = validation
    parameters: Tensor,  # (N, P)
    seeds: Tensor,  # (N,)
    settings: EmbeddingSettings,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # parameters, running (N, 2, units), epochs (N,), validation loss (N,)
    """Train N embeddings ψ on their Gram matrices (or on mini-batches of pairs) and keep each one's best epoch."""
    x, bias, parameters = (t.float().contiguous() for t in (x, bias, parameters))
    running = torch.zeros(x.shape[0], 2, sum(settings.hidden), device=x.device)
    running[:, 1] = 1
    if _fused(x, "cuda", "torch"):
        from aicau.ensembles.kernels import cuda_embedding

        if cuda_embedding.supports(settings, x.shape[-1], x.shape[1]):
            return cuda_embedding.train_embedding(x, bias, split, parameters, running, seeds, settings)
    if not _fused(x, "cpu", "numba"):
        return reference.train_embedding(x, bias, split, parameters, running, seeds, settings)
    from aicau.ensembles.kernels import cpu_embedding

    parameters = parameters.clone()
    tensors = (x, bias, split.to(torch.int8), parameters, running, seeds, *pairs.order(split, seeds, settings))
    arrays = [tensor.contiguous().numpy() for tensor in tensors]
    s, sizes = settings, np.array(settings.sizes(x.shape[-1]))
    rates = (s.dropout, s.learning_rate, *s.betas, s.weight_decay, s.momentum, s.epsilon, s.patience, s.max_epochs)
    with _launch():
        epochs, losses = cpu_embedding.train_embedding(*arrays, sizes, s.batch_size or 0, *rates)
    return parameters, running, torch.from_numpy(epochs), torch.from_numpy(losses)
