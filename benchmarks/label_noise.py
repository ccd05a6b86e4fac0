"""Who keeps asking where labels are pure noise: the share of each round's queries that falls into the noisy disc.

    python benchmarks/label_noise.py --runs 20 --out label-noise.png

The problem is `class2` with noise_scale 0: every label is right outside the disc and its edge, and says nothing inside.
"""

import sys
from pathlib import Path

from aicau import problems, simulate
from common import command

sys.path.append(str(Path(__file__).parents[1]))

from bench import classes as bench_classes


def main(runs: int = 20, rounds: int = 15, initial: int = 100, out: Path = Path("label-noise.png")) -> None:
    words = bench_classes.DRAWN
    result = simulate(problems.class2(noise_scale=0), words, initial, 10, rounds, runs, device="cpu")
    frame = result.to_frame().assign(panel=f"class2-{initial}")
    shares = bench_classes.noise_shares(frame)
    print("\n".join(bench_classes.noise_lines(frame)))
    for word in words:
        final = result.final_mse(word)
        print(f"{word}: final excess log loss {final.mean:.3f} [{final.low:.3f}, {final.high:.3f}]")
    (table,) = shares.values()
    title = f"A disc that holds 15% of the pool is pure label noise\n{initial} labels first, {runs} runs"
    bench_classes.noise_figure({title: table}).savefig(out, dpi=150)
    frame.to_csv(out.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    command(main)
