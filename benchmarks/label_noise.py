"""Who keeps asking where labels are pure noise: the share of each round's queries that falls into the noisy disc.

    python benchmarks/label_noise.py --runs 20 --out label-noise.png

The problem is `class2` with noise_scale 0: every label is right outside the disc and its edge, and says nothing inside.
"""

import argparse
from pathlib import Path

from aicau import problems, simulate
from bench import classes as bench_classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--initial", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("label-noise.png"))
    given = parser.parse_args()
    words = bench_classes.DRAWN
    result = simulate(problems.class2(noise_scale=0), words, given.initial, 10, given.rounds, given.runs, device="cpu")
    frame = result.to_frame().assign(panel=f"class2-{given.initial}")
    shares = bench_classes.noise_shares(frame)
    print("\n".join(bench_classes.noise_lines(frame)))
    for word in words:
        final = result.final_mse(word)
        print(f"{word}: final excess log loss {final.mean:.3f} [{final.low:.3f}, {final.high:.3f}]")
    (table,) = shares.values()
    title = f"A disc that holds 15% of the pool is pure label noise\n{given.initial} labels first, {given.runs} runs"
    bench_classes.noise_figure({title: table}).savefig(given.out, dpi=150)
    frame.to_csv(given.out.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
