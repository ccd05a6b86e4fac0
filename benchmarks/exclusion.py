"""Where measured points are kept out of an eigen batch in Type I: before the decomposition of Ω, or after it.

    python benchmarks/exclusion.py [--runs 10]

Prints a Markdown table of final MSE; docs/decisions.md holds the figures of a run.
"""

import argparse
from dataclasses import replace

from torch import Tensor

from aicau import Eigen, Strategy, simulate
from aicau.acquisition import Score, View
from aicau.batching import Selection
from aicau.core.omega import Omega
from aicau.round import Round


class WholePool(Omega):
    """Ω whose modes are computed over the whole pool: points that may not be measured are only barred afterwards."""

    def restrict(self, allowed: Tensor) -> Omega:
        return self


class EigenAfter(Eigen):
    """Eigen batching with the exclusion after the decomposition instead of before."""

    def select(self, score: Score, view: View, m: int) -> Selection:
        assert score.omega is not None
        whole = WholePool(score.omega.factor, score.omega.weights, score.omega.extra)
        return super().select(Score(score.alpha, whole), view, m)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    runs = given.runs
    strategies = [Strategy.parse("random")]
    for bias in ("direct", "quadratic", "perfect"):
        own = Strategy.parse(f"pemse:{bias}:eigen")
        strategies += [own, replace(own, name=f"{own.name} [barred after]", batching=EigenAfter())]
    how = Round.paper()
    results = [simulate("type1", strategies, initial, 10, given.rounds, runs, how=how) for initial in (10, 100)]
    print(f"Final MSE and, in brackets, its ratio to random (95% interval, {runs} runs)\n")
    print("| strategy | I, 10 | I, 100 |\n|---|---|---|")
    for strategy in strategies:
        cells = []
        for result in results:
            ratio, final = result.paired(strategy.name), result.final_mse(strategy.name).mean
            cells.append(f"{final:.3f} ({ratio.mean:.2f}: {ratio.low:.2f} to {ratio.high:.2f})")
        print(f"| {strategy.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
