"""Parts of `benchmarks/h200.sh`, each a process of its own:

    python benchmarks/h200.py time                  Q's kernel against the reference, and microseconds per step
    python benchmarks/h200.py reproduce NAME RUNS PRESETS FIGURES INITIALS

Results are written under $OUT.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.ensembles import kernels
from aicau.ensembles.kernels import EmbeddingSettings, reference

OUT = Path(os.environ.get("OUT", "results"))
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


def reproduce(name: str, runs: str, presets: str, figures: str, initials: str) -> None:
    from aicau.paper import verdicts
    from aicau.paper.plan import FIGURES, Plan, run

    names = tuple(FIGURES) if figures == "all" else tuple(figures.split(","))
    plan = Plan(names, int(runs), initials=tuple(map(int, initials.split(","))), presets=tuple(presets.split(",")))
    begin = time.perf_counter()

    def report(what: str, done: int, total: int) -> None:
        spent = time.perf_counter() - begin
        print(f"{name}: {what}, {done} of {total}, {spent:.1f} s", flush=True)

    outcome = run(plan, "cuda", report=report)
    judged = verdicts.judge(outcome)
    seconds = {part: round(spent, 1) for part, spent in outcome.seconds.items()}
    text = verdicts.to_markdown(judged, plan.runs)
    text += f"\n{time.perf_counter() - begin:.1f} s in all: {json.dumps(seconds)}\n"
    (OUT / f"claims-{name}.md").write_text(text)
    frame = outcome.frame
    last = frame["round"] == frame.groupby(["setting", "initial"])["round"].transform("max")
    key = ["setting", "type", "initial", "strategy", "preset", "run"]
    late = frame["round"] > frame.groupby(["setting", "initial"])["round"].transform("max") - verdicts.LAST
    tail = frame[late & (frame["round"] > 0)].groupby(key)["mse"].mean().rename("last_ten")
    both = tail.to_frame().join(frame[last].groupby(key)["mse"].mean().rename("final"))
    both.round(5).to_csv(OUT / f"errors-{name}.csv")
    frame.drop(columns="queried").round({"mse": 5}).to_csv(OUT / f"curves-{name}.csv.gz", index=False)
    print(text, flush=True)


def main() -> None:
    verb, *rest = sys.argv[1:]
    OUT.mkdir(parents=True, exist_ok=True)
    {"time": measure, "reproduce": reproduce}[verb](*rest)


if __name__ == "__main__":
    main()
