"""How often `tell` points out a value: false alarms on data as they are, and slips of a decimal point that are found.

    python benchmarks/outliers.py DATA        a folder of data sets, each with data.csv or data.csv.gz and a column y

One plate of 96 values at random is told, then ten more; alarms are shares of those 960. A slip multiplies one value of
each plate by 10, by 1000, or by 1/1000. No model and no replicates: the comparison with all values is left.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from aicau.store.identity import Measurement
from aicau.store.outliers import find
from common import command, header, row


def alarms(y: np.ndarray, factor: float | None) -> tuple[int, int]:
    """Alarms, and values that could have been one."""
    rng = np.random.default_rng(0)
    told: list[Measurement] = []
    raised = count = 0
    for plate in range(11):
        values = rng.choice(y, 96)
        slip = int(rng.integers(96))
        if factor is not None and plate:
            values[slip] *= factor
        new = [Measurement(len(told) + i, float(v), line=i) for i, v in enumerate(values)]
        found = {one.place for one in find(new, told, [])} if plate else set()
        raised += len(found) if factor is None else slip in found
        count += 0 if not plate else 96 if factor is None else 1
        told += new
        if factor is not None and plate:
            told.pop(len(told) - 96 + slip)  # corrected
    return raised, count


def main(data: Annotated[Path, typer.Argument()]) -> None:
    header("data set", "false alarms", "×10 found", "×1000 found", "/1000 found")
    total = np.zeros((4, 2))
    for folder in sorted(data.iterdir()):
        file = next(iter(folder.glob("data.csv*")), None) if folder.is_dir() else None
        if file is None:
            continue
        table = pd.read_csv(file)
        y = table["y" if "y" in table else table.columns[-1]].to_numpy(dtype=float)
        found = [alarms(y[np.isfinite(y)], factor) for factor in (None, 10.0, 1000.0, 0.001)]
        total += found
        row(folder.name, *(f"{raised / count:.1%}" for raised, count in found))
    row("all", *(f"{raised / count:.1%}" for raised, count in total))


if __name__ == "__main__":
    command(main)
