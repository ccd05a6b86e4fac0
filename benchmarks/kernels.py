"""How much faster the fused kernels are than batched PyTorch doing the same thing, on the same machine in the same run.

    python benchmarks/kernels.py [--device cpu | cuda] [--epochs 20] [--runs 1 100] [--threads 1] [--busy]

Part by part: training of F_k for each head, training of Q, and the forward passes (PyTorch run by run on the CPU, or
all runs in one batch). Then whole jobs: rounds of `simulate` with a paper strategy, with one kind of kernel or the
other. A hand-written kernel must make a whole job at least 3 times faster than batched PyTorch to stay (decision 10).
Times are the least of a few calls, after one that compiles; with `--busy` they are of the processor, for a machine on
which other programs run. With `--epochs 500` the jobs are the paper's for F_k.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from aicau import MLP, Strategy, simulate
from aicau.bias import Quadratic
from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.ensembles import kernels
from aicau.ensembles.base import fold_membership
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings, reference
from common import best

Call = Callable[[], Any]
NEVER = 10**9
MEMBERS, ROWS, POOL = 5, 60, 2500
clock = [time.perf_counter]
HEADS = {"squared": 1, "softmax": 3, "poisson": 1}


def seconds(function: Call, device: str, repeats: int) -> float:
    def work() -> None:
        function()
        if device == "cuda":
            torch.cuda.synchronize()

    return best(work, repeats, clock[0])


def networks(runs: int, head: str, epochs: int, device: str) -> tuple[Call, Call, Call]:
    """Training of F_k, its forward pass over a pool, and the same in one batch."""
    settings = MLPSettings(max_epochs=epochs, patience=NEVER, head=head, outputs=HEADS[head])
    keys = streams.runs(0, runs)
    x = 6.28 * streams.uniform(keys, ROWS, 2).float()
    y = torch.sin(1.5 * x).prod(-1)
    if head == "softmax":
        y = torch.softmax(torch.stack([y, -y, 0 * y], -1), -1)
    elif head == "poisson":
        y = (y + 1)[..., None]
    weights = (~fold_membership(keys, MEMBERS, x)).float()
    start = 0.3 * (2 * streams.uniform(streams.fold(keys, 1), MEMBERS, settings.parameters(2)).float() - 1)
    pool = 6.28 * torch.rand(1, POOL, 2)
    x, y, weights, start, pool = (t.to(device) for t in (x, y, weights, start, pool))
    return (
        lambda: kernels.train_mlp(x, y, weights, start, settings),
        lambda: kernels.mlp_forward(start, pool, settings),
        lambda: reference.mlp_forward(start, pool[:, None], settings),
    )


def embeddings(runs: int, epochs: int, device: str, size: int | None) -> tuple[Call, Call, Call]:
    """Training of Q, ψ over a pool, and the same in one batch."""
    settings = EmbeddingSettings(max_epochs=epochs, patience=NEVER, batch_size=size)
    keys = streams.runs(0, runs)
    x, pool = streams.uniform(keys, ROWS, 4).float(), streams.uniform(streams.fold(keys, 1), POOL, 4).float()
    bias = streams.normal(streams.fold(keys, 2), ROWS).float()
    split = split_pairs(keys, torch.ones(runs, ROWS, dtype=torch.bool), settings.validation)
    start = initial_parameters(keys, 4, settings)
    running = torch.zeros(runs, 2, sum(settings.hidden))
    running[:, 1] = 1
    x, pool, bias, split, start, keys, running = (t.to(device) for t in (x, pool, bias, split, start, keys, running))
    return (
        lambda: kernels.train_embedding(x, bias, split, start, keys, settings),
        lambda: kernels.embed(start, running, pool, settings),
        lambda: reference.embed(start, running, pool, settings),
    )


def job(strategy: str, runs: int, epochs: int, device: str) -> Call:
    """Two rounds of ten points on Type II; every network has as many epochs at most."""
    parsed = Strategy.parse(strategy)
    if isinstance(parsed.bias, Quadratic):
        parsed = replace(parsed, bias=Quadratic(EmbeddingSettings(max_epochs=epochs)))
    ensemble = MLP(settings=MLPSettings(max_epochs=epochs))
    return lambda: simulate("type2", [parsed], 50, 10, 1, runs, device=device, ensemble=ensemble)


def row(name: str, runs: int, function: Call, device: str, repeats: int, other: Call | None = None) -> None:
    fused = seconds(function, device, repeats)
    with kernels.use("reference"):
        plain = seconds(other or function, device, repeats)
    print(f"{name:54} {runs:5} {fused * 1e3:11.1f} {plain * 1e3:11.1f} {plain / fused:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fused kernels against batched PyTorch.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=20, help="of every network; the paper's are 500 and 2,000")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="1 where other programs run")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="time of the processor, where other programs run")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    if a.busy:
        clock[0] = time.process_time
    print(f"{a.device}, {torch.get_num_threads()} threads, {a.epochs} epochs, {ROWS} points, pool of {POOL}")
    print(f"{'':54} {'runs':>5} {'fused ms':>11} {'PyTorch ms':>11} {'ratio':>8}")
    for runs in a.runs:
        for head in HEADS:
            train, forward, batched = networks(runs, head, a.epochs, a.device)
            row(f"training F_k, {head}", runs, train, a.device, a.repeats)
            row(f"forward F_k, {head}", runs, forward, a.device, a.repeats, batched)
        for size in (128, None):
            train, forward, batched = embeddings(runs, a.epochs, a.device, size)
            name = f"training Q, {'full batch' if size is None else f'mini-batches of {size}'}"
            row(name, runs, train, a.device, a.repeats)
        row("forward Q", runs, forward, a.device, a.repeats, batched)
        for strategy in ("lc", "pemse:quadratic:eigen"):
            row(f"simulate {strategy}", runs, job(strategy, runs, a.epochs, a.device), a.device, 1)


if __name__ == "__main__":
    main()
