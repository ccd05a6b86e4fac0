"""What one temperature is worth: excess log loss of three classes far from the measured points.

Columns: no temperature (T = 1), the best one for these points (nobody knows it), and the one a campaign takes.
"""

import argparse
from itertools import product

import numpy as np
import torch

from aicau.core import bregman, streams
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.prediction import discrete_fit

POOL = 500


def losses(points: int, labels: int, sharpness: float, seed: int) -> list[float]:
    """Of one run: T = 1, the best T, the T of a campaign."""
    x = torch.randn(POOL, 3, generator=torch.Generator().manual_seed(seed))
    first, second, _ = x.numpy().T.astype(float)
    scores = sharpness * np.stack([3 * np.sin(1.5 * first), 2 * second, np.zeros(POOL)], -1)
    truth = np.exp(scores - np.logaddexp.reduce(scores, -1, keepdims=True))
    rng = np.random.default_rng(seed)
    share = rng.multinomial(labels, truth[:points]) / labels
    fitted = MLP(task=Task("classification", 3)).fit_shares(
        x[None, :points], torch.from_numpy(share)[None], streams.runs(seed, 1)
    )
    members = fitted.predict(x)[0].double().clamp_min(1e-12).movedim(0, 1)  # (n, K, c)
    apart = fitted.unseen[0].T.double()[..., None]
    outside = ((members[:points] * apart).sum(1) / apart.sum(1).clamp_min(1)).numpy()
    found = discrete_fit.class_figures(("a", "b", "c"), outside, share, np.full(points, float(labels)))
    log = bregman.mean_of(bregman.KL, members)[points:].log()
    new = torch.from_numpy(truth[points:])

    def excess(temperature: float) -> float:
        return float(bregman.divergence("kl", new, torch.softmax(log / temperature, -1)).mean())

    every = [excess(float(t)) for t in discrete_fit.TEMPERATURES]
    return [excess(1.0), min(every), excess(found["temperature"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    print("points labels sharpness     T=1    best  campaign")
    for points, labels, sharpness in product((10, 30, 100), (1, 4), (0.5, 1.0, 3.0)):
        row = np.mean([losses(points, labels, sharpness, seed) for seed in range(runs)], 0)
        print(f"{points:6d} {labels:6d} {sharpness:9.1f} " + " ".join(f"{value:7.3f}" for value in row))


if __name__ == "__main__":
    main()
