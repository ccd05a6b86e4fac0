"""Speed as ratios against the obvious way, all in one run on one machine.

    python benchmarks/speed.py [--json]

(a) 100 paper networks at 100 points, per network and epoch, against a plain PyTorch loop over networks;
(b) Q at 100 measured points, per run and epoch, 20 runs at once, against pairs in a DataLoader (batches of 256);
(c) an eigen batch at n = 2,500 against dense float64 `eigh`; and n = 1,000,000 with its peak memory over the factor's.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aicau import Omega, Score, View
from aicau.batching import Eigen
from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.ensembles import kernels
from aicau.ensembles.base import fold_membership
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings

NEVER = 10**9


def best(function: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of a few calls, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def networks() -> dict[str, float]:
    runs, members, rows, epochs = 20, 5, 100, 200
    x = torch.rand(runs, rows, 2) * 6.28
    y = torch.sin(1.5 * x).prod(-1)
    weights = (~fold_membership(streams.runs(0, runs), members, x)).float()
    settings = MLPSettings(max_epochs=epochs, patience=NEVER)
    parameters = (torch.rand(runs, members, settings.parameters(2)) * 2 - 1) * 0.3
    ours = best(lambda: kernels.train_mlp(x, y, weights, parameters, settings)) / (runs * members * epochs)

    def plain() -> None:
        net = nn.Sequential(
            nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
        )
        optimiser = torch.optim.Adam(net.parameters(), 1e-3)
        seen = weights[0, 0] > 0
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.mse_loss(net(x[0, seen])[:, 0], y[0, seen]).backward()
            optimiser.step()

    theirs = best(plain) / 100
    return {"ours_us": ours * 1e6, "plain_us": theirs * 1e6, "ratio": theirs / ours}


class PairNetwork(nn.Module):
    """ψ as plain PyTorch modules, trained on rows (x_i, x_j, δ_i δ_j)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in ((4, 64), (64, 64), (64, 32)):
            layers += [nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.1)]
        self.psi = nn.Sequential(*layers, nn.Linear(32, 16))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (self.psi(a) * self.psi(b)).sum(-1)


def pair_epoch(train: DataLoader[tuple[torch.Tensor, ...]], held: list[torch.Tensor]) -> Callable[[], None]:
    """One epoch of Q the obvious way: pairs in mini-batches, then the validation loss."""
    net = PairNetwork()
    optimiser = torch.optim.Adam(net.parameters(), 3e-4, weight_decay=1e-5)

    def epoch() -> None:
        net.train()
        for a, b, target in train:
            optimiser.zero_grad()
            nn.functional.mse_loss(net(a, b), target).backward()
            optimiser.step()
        net.eval()
        with torch.no_grad():
            nn.functional.mse_loss(net(held[0], held[1]), held[2])

    return epoch


def cobias() -> dict[str, float]:
    runs, rows, epochs = 20, 100, 10
    settings = EmbeddingSettings(max_epochs=epochs, patience=NEVER, batch_size=256)
    keys = streams.runs(0, runs)
    x, bias = torch.rand(runs, rows, 4), torch.randn(runs, rows) * 0.3
    split = split_pairs(keys, torch.ones(runs, rows, dtype=torch.bool), 0.15)
    start = initial_parameters(keys, 4, settings)
    ours = best(lambda: kernels.train_embedding(x, bias, split, start, keys, settings)) / (runs * epochs)
    i, j = torch.tril_indices(rows, rows)
    fit, check = split[0, i, j] == 1, split[0, i, j] == 2
    data = TensorDataset(x[0, i], x[0, j], bias[0, i] * bias[0, j])
    train = DataLoader(TensorDataset(*(t[fit] for t in data.tensors)), batch_size=256, shuffle=True)
    held = [t[check] for t in data.tensors]
    epoch = pair_epoch(train, held)
    theirs = best(epoch)
    return {"ours_us": ours * 1e6, "pairs_us": theirs * 1e6, "ratio": theirs / ours}


def factor(n: int) -> torch.Tensor:
    """Σ_F of five members and a direct Δ."""
    return torch.randn(1, n, 6, generator=torch.Generator().manual_seed(0))


def view_of(n: int) -> View:
    every = torch.ones(1, n, dtype=torch.bool)
    return View(torch.zeros(n, 1), every, ~every, torch.zeros(1, dtype=torch.int64))


def memory(field: str) -> int:
    """Bytes by the kernel's count: VmRSS held now, VmHWM at the peak (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def eigen() -> dict[str, float]:
    omega = Omega(factor(2500))
    view = view_of(2500)
    ours = best(lambda: Eigen().select(Score.of(omega), view, 10), repeats=10)
    dense = omega.dense()[0].double()
    theirs = best(lambda: torch.linalg.eigh(dense), repeats=2)
    # In a process of its own that gives freed memory back at once, so that the peak is what is alive.
    command = [sys.executable, __file__, "--memory"]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    million = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return {
        "ours_ms": ours * 1e3,
        "dense_ms": theirs * 1e3,
        "ratio": theirs / ours,
        "million_peak_over_factor": float(million),
    }


def million() -> float:
    """Peak memory of an eigen batch over a million points, the factor included, in units of the factor."""
    Eigen().select(Score.of(Omega(factor(1000))), view_of(1000), 10)
    omega, view = Omega(factor(1_000_000)), view_of(1_000_000)
    size = omega.factor.numel() * omega.factor.element_size()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is held now
    before = memory("VmRSS")
    Eigen().select(Score.of(omega), view, 10)
    return 1 + (memory("VmHWM") - before) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(million())
        return
    torch.manual_seed(0)
    results = {"networks": networks(), "cobias": cobias(), "eigen": eigen()}
    if arguments.json:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        print(f"{name:10s}" + "  ".join(f"{key} {value:,.1f}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
