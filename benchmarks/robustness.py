"""Do the verdicts on the paper's claims depend on what the paper leaves open?

    python benchmarks/robustness.py [--runs 10] [--figures batching,estimation] [--types type1,type2,type3]
                                    [--initials 10,100] [--device auto] [--only NAME] [--out FILE]

Each setting changes one thing against the preset that learns; one column per setting, one row per claim.
"""

import time
from dataclasses import replace
from pathlib import Path

from aicau import Quadratic, Strategy
from aicau.ensembles.kernels import EmbeddingSettings
from aicau.paper import plan as paper
from aicau.paper import verdicts
from common import command, ends, numbers

USUAL, PRINTED = (0.9, 0.999), (0.999, 0.9)


def with_q(size: int | None, betas: tuple[float, float] = USUAL) -> paper.Make:
    """The paper's strategies with another training of Q."""
    changed = Quadratic(EmbeddingSettings(batch_size=size, betas=betas))

    def make(word: str, preset: str) -> Strategy:
        strategy = paper.strategy(word)
        return replace(strategy, bias=changed) if isinstance(strategy.bias, Quadratic) else strategy

    return make


SETTINGS: dict[str, paper.Make] = {
    "learns (128)": with_q(128),
    "printed (128)": with_q(128, PRINTED),
    "learns, 32": with_q(32),
    "learns, 512": with_q(512),
    "full batch": with_q(None),
    "full batch, printed": with_q(None, PRINTED),
}


def main(
    runs: int = 10,
    figures: str = "batching",
    types: str = "type1,type2,type3",
    initials: str = "10,100",
    device: str = "auto",
    only: list[str] = list(SETTINGS),  # noqa: B006
    out: Path | None = None,
) -> None:
    columns: dict[str, dict[str, str]] = {}
    finals: list[str] = []
    scope = {"types": tuple(types.split(",")), "initials": tuple(numbers(initials))}
    plan = paper.Plan(tuple(figures.split(",")), runs, **scope, presets=("learns",))
    for name in only:
        begin = time.perf_counter()
        outcome = paper.run(plan, device, make=SETTINGS[name])
        judged = [v for v in verdicts.judge(outcome) if v.measure == verdicts.MEASURES[0]]
        columns[name] = {v.claim.number: f"{ends(v.pooled)} {v.word}" for v in judged}
        frame = outcome.frame
        last = frame[frame["round"] == frame.groupby("setting")["round"].transform("max")]
        means = last.groupby(["setting", "initial", "type", "strategy"])["mse"].mean().unstack([0, 1, 2])
        finals.append(f"\n{name} ({time.perf_counter() - begin:.0f} s): final MSE\n\n{means.round(4).to_string()}\n")
        text = [f"{runs} runs, {figures}, {types}", ""]
        text += ["| claim | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for number in next(iter(columns.values())):
            text.append(f"| {number} | " + " | ".join(column[number] for column in columns.values()) + " |")
        output = "\n".join(text) + "\n"
        print(name, f"{time.perf_counter() - begin:.0f} s", flush=True)
        if out:  # after every setting, so that an interrupted run leaves what it has
            out.write_text(output + "".join(finals))
    print(output)


if __name__ == "__main__":
    command(main)
