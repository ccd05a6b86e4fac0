"""A part of `benchmarks/h200.sh`: Q's kernel against the reference, and microseconds per step."""

import json
import time
from dataclasses import replace

import torch

from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.ensembles import kernels
from aicau.ensembles.kernels import EmbeddingSettings, reference

LEARNS = EmbeddingSettings(batch_size=128)


def fits(runs: int, rows: int, settings: EmbeddingSettings) -> tuple[torch.Tensor, ...]:
    keys = streams.runs(0, runs, "cuda")
    x = streams.uniform(keys, rows, 4).float()
    bias = 0.1 * streams.normal(streams.fold(keys, 2), rows).float()
    split = split_pairs(keys, torch.ones(runs, rows, dtype=torch.bool, device="cuda"), settings.validation)
    return x, bias, split, initial_parameters(keys, 4, settings), keys


def measure() -> None:
    for name, base in (("mini-batches", LEARNS), ("full batches", EmbeddingSettings())):
        exact = replace(base, dropout=0.0, max_epochs=3)
        data = fits(3, 60, exact)
        running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1).cuda()
        ours = kernels.train_embedding(*data, exact)[3]
        theirs = reference.train_embedding(*data[:4], running, data[4], exact)[3]
        apart = float(((ours - theirs) / theirs).abs().max())
        spent = {}
        for rows in (35, 60, 125, 200):
            for runs in (60, 120, 300):
                pairs = round(0.85 * rows * (rows + 1) / 2)
                steps = 1 if base.batch_size is None else -(-pairs // base.batch_size)
                settings = replace(base, max_epochs=max(20, 2000 // steps), patience=10**6)
                data = fits(runs, rows, settings)
                for _ in range(2):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    kernels.train_embedding(*data, settings)
                    torch.cuda.synchronize()
                    seconds = time.perf_counter() - begin
                spent[f"{rows}x{runs}"] = round(seconds / settings.max_epochs / steps * 1e6, 1)
        print(json.dumps({"Q": name, "apart": apart, "microseconds": spent}), flush=True)


if __name__ == "__main__":
    measure()
