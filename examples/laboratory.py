"""A laboratory on a computer: plates that shift every value on them, controls, failed wells, replicates, a correction.

    python examples/laboratory.py demo

It writes a table of candidates, runs a whole campaign with the command line's verbs (init, ask, tell, abandon, status,
predict, export, report, doctor) through a real store in the given folder, and leaves the report there.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd

from aicau.cli import app

CANDIDATES, WELLS, PLATES, REPLICATES = 2000, 48, 8, 2
NOISE, PLATE_SHIFT, FAILURES = 0.08, 0.12, 0.03
CONTROL, CONTROLS = "DMSO", 8  # wells of it on every plate
SOLVENTS = {"water": 0.0, "DMSO": 0.25, "ethanol": -0.2}


def candidates(rng: np.random.Generator) -> pd.DataFrame:
    """Compounds with a dose on a log scale, an acidity, a temperature and a solvent."""
    return pd.DataFrame(
        {
            "compound": [f"C{i:04d}" for i in range(CANDIDATES)],
            "log_dose": rng.uniform(-3, 2, CANDIDATES).round(3),
            "ph": rng.uniform(5, 9, CANDIDATES).round(2),
            "temperature": rng.choice([25, 30, 37, 42], CANDIDATES),
            "solvent": rng.choice(list(SOLVENTS), CANDIDATES),
        }
    )


def viability(pool: pd.DataFrame) -> np.ndarray:
    """The truth, which the campaign never sees: a dose response whose midpoint moves with acidity and solvent."""
    midpoint = -0.5 + 0.6 * np.sin(2.2 * (pool.ph - 7)) + pool.solvent.map(SOLVENTS)
    warmth = 0.25 * np.exp(-(((pool.temperature - 37) / 6) ** 2))
    return np.asarray(0.15 + 0.75 / (1 + np.exp(3 * (pool.log_dose - midpoint))) + warmth)


class Laboratory:
    """Measures what is on a plate. Noise is larger where the response is in between, and every plate has its shift."""

    def __init__(self, pool: pd.DataFrame, rng: np.random.Generator) -> None:
        self.truth = pd.Series(viability(pool), index=pool.compound)
        self.truth[CONTROL] = 0.9
        self.rng = rng

    def measure(self, plate: pd.DataFrame, name: str) -> pd.DataFrame:
        rows = pd.concat([plate[["compound", "well"]]] * REPLICATES, ignore_index=True)
        mean = self.truth[rows.compound].to_numpy()
        noise = NOISE * (0.5 + 2 * mean * (1.2 - mean).clip(0))
        shift = PLATE_SHIFT * self.rng.normal()
        rows["viability"] = (mean + shift + noise * self.rng.normal(size=len(rows))).round(4)
        rows["plate"] = name
        rows["status"] = np.where(self.rng.random(len(rows)) < FAILURES, "failed", "ok")
        rows.loc[rows.status == "failed", "viability"] = np.nan
        return rows


def aicau(*words: object) -> str:
    """One command, as a person would type it (without starting Python anew); the campaign is opened every time."""
    line = [str(word) for word in words]
    print("$ aicau", *line, flush=True)
    with redirect_stdout(io.StringIO()) as said:
        app(line, standalone_mode=False)
    if "--json" not in line:
        print(said.getvalue(), end="", flush=True)
    return said.getvalue()


def main(folder: Path, plates: int = PLATES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    pool = candidates(rng)
    lab = Laboratory(pool, rng)
    campaign = folder / "screen.db"
    for old in [*folder.glob("screen.db*"), *folder.glob("plate-*.csv"), *folder.glob("predictions.csv")]:
        old.unlink()  # of an earlier demo: aicau itself replaces no file that a person may have filled in
    pool.to_csv(folder / "candidates.csv", index=False)
    names = ["--id", "compound", "--target", "viability", "--batch", "plate"]
    plate = ["--layout", 96, "--control", f"{CONTROL}={CONTROLS}", "--no-edges"]
    aicau("init", campaign, folder / "candidates.csv", *names, *plate, "--author", "demo")
    for number in range(1, plates + 1):
        asked, told = folder / f"plate-{number}.csv", folder / f"plate-{number}-results.csv"
        aicau("ask", campaign, WELLS, "--out", asked, "--request", f"plate-{number}", "--author", "demo")
        results = lab.measure(pd.read_csv(asked), f"P{number}")
        if number == 2:  # a pipette slipped: one row is wrong at first, and corrected below
            right, results.loc[5, "viability"] = results.loc[5].copy(), 9.9
        results.to_csv(told, index=False)
        aicau("tell", campaign, told, "--author", "demo")
        if number == 2:
            same = results[results.compound == right.compound].copy()
            same.loc[5] = right
            same.to_csv(folder / "plate-2-correction.csv", index=False)
            aicau("tell", campaign, folder / "plate-2-correction.csv", "--correct", "--author", "demo")
    rows = json.loads(aicau("ask", campaign, WELLS, "--request", "next", "--json"))
    aicau("abandon", campaign, rows[0]["compound"], "--author", "demo")
    aicau("status", campaign)
    aicau("predict", campaign, "--out", folder / "predictions.csv")
    aicau("export", campaign, folder / "export")
    aicau("doctor", campaign)
    aicau("report", campaign, "--out", folder / "report.html")
    said = pd.read_csv(folder / "predictions.csv").set_index("compound")
    error = said["mean"] - lab.truth[said.index]
    print(f"against the truth, which only this script knows: RMSE {np.sqrt((error**2).mean()):.3f} over all candidates")
    print(f"open it as a page: {Path(sys.executable).parent / 'aicau'} serve {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
