"""Do the verdicts on the paper's claims depend on what the paper leaves open?

    python benchmarks/robustness.py [--runs 10] [--figures batching,estimation] [--types type1,type2,type3]
                                    [--initials 10,100] [--device auto] [--only NAME] [--out FILE]

Each setting changes one thing against the preset that learns; one column per setting, one row per claim.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from aicau import MLP, Quadratic, Strategy
from aicau.ensembles.kernels import EmbeddingSettings
from aicau.paper import plan as paper
from aicau.paper import verdicts

USUAL, PRINTED = (0.9, 0.999), (0.999, 0.9)


def with_q(size: int | None, betas: tuple[float, float] = USUAL) -> paper.Make:
    """The paper's strategies with another training of Q."""
    changed = Quadratic(EmbeddingSettings(batch_size=size, betas=betas))

    def make(word: str, preset: str) -> Strategy:
        strategy = paper.strategy(word)
        return replace(strategy, bias=changed) if isinstance(strategy.bias, Quadratic) else strategy

    return make


SETTINGS: dict[str, tuple[paper.Make, MLP]] = {
    "learns (128)": (with_q(128), MLP()),
    "printed (128)": (with_q(128, PRINTED), MLP()),
    "learns, 32": (with_q(32), MLP()),
    "learns, 512": (with_q(512), MLP()),
    "full batch": (with_q(None), MLP()),
    "full batch, printed": (with_q(None, PRINTED), MLP()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--figures", default="batching")
    parser.add_argument("--types", default="type1,type2,type3")
    parser.add_argument("--initials", default="10,100")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", action="append", choices=list(SETTINGS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    finals: list[str] = []
    for name, (make, ensemble) in SETTINGS.items():
        if arguments.only and name not in arguments.only:
            continue
        begin = time.perf_counter()
        plan = paper.Plan(
            tuple(arguments.figures.split(",")),
            arguments.runs,
            types=tuple(arguments.types.split(",")),
            initials=tuple(int(i) for i in arguments.initials.split(",")),
            presets=("learns",),
        )
        outcome = paper.run(plan, arguments.device, make=make, ensemble=ensemble)
        judged = [v for v in verdicts.judge(outcome) if v.measure == verdicts.MEASURES[0]]
        columns[name] = {
            v.claim.number: f"{v.pooled.mean:.2f} ({v.pooled.low:.2f} to {v.pooled.high:.2f}) {v.word}" for v in judged
        }
        frame = outcome.frame
        last = frame[frame["round"] == frame.groupby("setting")["round"].transform("max")]
        means = last.groupby(["setting", "initial", "type", "strategy"])["mse"].mean().unstack([0, 1, 2])
        finals.append(f"\n{name} ({time.perf_counter() - begin:.0f} s): final MSE\n\n{means.round(4).to_string()}\n")
        text = [f"{arguments.runs} runs, {arguments.figures}, {arguments.types}", ""]
        text += ["| claim | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for number in next(iter(columns.values())):
            text.append(f"| {number} | " + " | ".join(column[number] for column in columns.values()) + " |")
        output = "\n".join(text) + "\n"
        print(name, f"{time.perf_counter() - begin:.0f} s", flush=True)
        if arguments.out:  # after every setting, so that an interrupted run leaves what it has
            arguments.out.write_text(output + "".join(finals))
    print(output)


if __name__ == "__main__":
    main()
