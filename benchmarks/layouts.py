"""What a layout is worth: plates with edge effects and gradients, the same candidates put on them in three ways.

    python benchmarks/layouts.py [--runs 20] [--seed 0]

Four plates of 96, each with 26 candidates in two wells and 8 wells of a control (60 wells, so the edges may stay empty)
or with 44 in two wells and 8 of a control (all 96). A plate adds a shift (sd 0.3), a gradient in a random direction
(0.5 from end to end), -0.4 on its edge wells and noise (sd 0.1). The truth is a smooth function of two features.

- `in order`: the candidates by their first feature from A01 on, replicates side by side, controls in the last wells;
- `random`: candidates and controls in random wells;
- `layout`: `aicau.campaign.layout`, without the edges where they are not needed.

The error is that of the prediction over 300 candidates, root mean square, the unknown common level taken out. Ratios
are paired by run: the same candidates, plates and noise.
"""

import numpy as np
import pandas as pd
import torch

from aicau import ensembles
from aicau.campaign import layout
from aicau.core import streams
from aicau.core.observations import Observations
from aicau.core.statistics import paired_ratio
from aicau.core.task import REGRESSION
from aicau.gp.plates import Controls
from aicau.round import Round
from common import command, ends, header, one_thread, row

POOL, PLATES, SHIFT, GRADIENT, EDGE, NOISE, CONTROLS = 300, 4, 0.3, 0.5, -0.4, 0.1, 8
SIZES = {"60 wells": (26, False), "96 wells": (44, True)}
ALL = [(row, column) for row in range(8) for column in range(12)]


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 1]


def wells(kind: str, points: list[int], edges: bool, rng: np.random.Generator) -> tuple[list, list]:
    """Places of the points and of the controls."""
    if kind == "layout":
        made = layout.make(96, {"control": CONTROLS}, edges)
        where = layout.assign(made, points, [int(rng.integers(2**31))])
        return [layout.place(one) for one in where], [layout.place(one) for one in made["controls"]["control"]]
    order = ALL if kind == "in order" else [ALL[at] for at in rng.permutation(len(ALL))]
    return order[: len(points)], order[len(points) : len(points) + CONTROLS]


def run(seed: int, size: int, edges: bool) -> dict[str, float]:
    """Error of the prediction by the way the plates were filled."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (POOL, 2))
    mu = truth(x)
    asked = [np.sort(rng.choice(POOL, size, replace=False)) for _ in range(PLATES)]
    angle, shift = rng.uniform(0, 2 * np.pi, PLATES), SHIFT * rng.normal(size=PLATES)
    field = NOISE * rng.normal(size=(PLATES, 8, 12))
    for plate in range(PLATES):
        down, along = np.meshgrid(np.linspace(-0.5, 0.5, 8), np.linspace(-0.5, 0.5, 12), indexing="ij")
        field[plate] += shift[plate] + GRADIENT * (np.cos(angle[plate]) * down + np.sin(angle[plate]) * along)
        field[plate, [0, -1]] += EDGE
        field[plate, 1:-1, [0, -1]] += EDGE
    errors = {}
    for number, kind in enumerate(("in order", "random", "layout")):
        own = np.random.default_rng([seed, number])
        index, y, batch, control = [], [], [], []
        for plate in range(PLATES):
            by_feature = asked[plate][np.argsort(x[asked[plate], 0])]
            points = np.repeat(by_feature, 2).tolist()
            places, references = wells(kind, points, edges, own)
            index += points
            y += [mu[point] + field[plate][place] for point, place in zip(points, places, strict=True)]
            batch += [plate] * len(points)
            control += [(plate, 1.0 + field[plate][place]) for place in references]
        plates, values = (torch.tensor(part) for part in zip(*control, strict=True))
        controls = Controls(torch.zeros_like(plates), values.double(), plates)
        together = torch.tensor(batch)[None]
        rows = Observations(torch.tensor(index)[None], torch.tensor(y)[None].double(), together[0], together)
        how = Round(ensembles.make("process", REGRESSION))
        state = how.fit(torch.from_numpy(x), rows, streams.runs(seed, 1), controls)
        off = how.predictor(state).predict(state).mean.numpy() - mu
        errors[kind] = float(np.std(off))
    return errors


def main(runs: int = 20, seed: int = 0) -> None:
    one_thread()
    header("wells used", "in order", "random", "layout", "layout / random", "layout / in order")
    for name, (size, edges) in SIZES.items():
        table = pd.DataFrame([run(seed + at, size, edges) for at in range(runs)])
        found = [paired_ratio(table["layout"].to_numpy(), table[other].to_numpy()) for other in ("random", "in order")]
        row(name, *(f"{value:.3f}" for value in table.mean()), *map(ends, found))


if __name__ == "__main__":
    command(main)
