"""What the paper leaves open, measured: final MSE of each choice, paired with the package's own.

    python benchmarks/open_questions.py [--runs 10] [--question fill|exclusion]

Prints one Markdown table per question; docs/decisions.md holds the figures of a run.
"""

import argparse
from dataclasses import replace

from torch import Tensor

from aicau import Eigen, Strategy, simulate
from aicau.acquisition import Score, View
from aicau.omega import Omega


class WholePool(Omega):
    """Ω whose modes are computed over the whole pool: points that may not be measured are only barred afterwards."""

    def restrict(self, allowed: Tensor) -> Omega:
        return self


class EigenAfter(Eigen):
    """Eigen batching with the exclusion after the decomposition instead of before."""

    def select(self, score: Score, view: View, m: int) -> Tensor:
        assert score.omega is not None
        whole = WholePool(score.omega.factor, score.omega.signs, score.omega.extra)
        return super().select(Score(score.alpha, whole), view, m)


def variant(text: str, label: str, **parts: object) -> Strategy:
    return replace(Strategy.parse(text), name=f"{text} [{label}]", **parts)


def questions() -> dict[str, list[Strategy]]:
    ours = [Strategy.parse(f"pemse:{bias}:eigen") for bias in ("direct", "quadratic", "perfect")]
    fill, exclusion = [], []
    for own in ours:
        fill += [own, *(variant(own.name, f"fill {f}", batching=Eigen(f)) for f in ("top", "cycle"))]
        exclusion += [own, variant(own.name, "exclude after", batching=EigenAfter())]
    return {"fill": fill, "exclusion": exclusion}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--question", choices=sorted(questions()), action="append")
    arguments = parser.parse_args()
    random = Strategy.parse("random")
    for name, strategies in questions().items():
        if arguments.question and name not in arguments.question:
            continue
        problems = ["type1"] if name == "exclusion" else ["type1", "type2", "type3"]
        panels = [(problem, initial) for initial in (10, 100) for problem in problems]
        results = [
            simulate(problem, [random, *strategies], initial=initial, batch_size=10, rounds=10, runs=arguments.runs)
            for problem, initial in panels
        ]
        print(f"\n**{name}**: final MSE and, in brackets, its ratio to random (95% interval, {arguments.runs} runs)\n")
        print("| strategy | " + " | ".join(f"{p}, {i}" for p, i in panels) + " |")
        print("|---" * (len(panels) + 1) + "|")
        for strategy in [random, *strategies]:
            cells = []
            for result in results:
                ratio = result.paired(strategy.name)
                final = result.final_mse(strategy.name).mean
                cells.append(f"{final:.3f} ({ratio.mean:.2f}: {ratio.low:.2f} to {ratio.high:.2f})")
            print(f"| {strategy.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
