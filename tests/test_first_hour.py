"""docs/first-hour.md is a transcript: every command in it runs here, and says what the page says it says."""

import re
import shlex
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from aicau import Campaign, tables
from commands import run

PAGE = Path(__file__).parents[1] / "docs" / "first-hour.md"


def candidates():
    """The laboratory's own Excel file."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "Compound ID": [f"{i:05d}" for i in range(101, 149)],
            "dose": np.round(rng.uniform(0.1, 10, 48), 2),
            "pH": np.round(rng.uniform(5, 9, 48), 1),
            "solvent": rng.choice(["DMSO", "ethanol", "water"], 48),
            "SMILES": ["C" * (1 + i) for i in range(48)],
        }
    )


def measured(rows, plate):
    """What the laboratory measures: a smooth response, a shift of the plate, some noise."""
    rng = np.random.default_rng(len(plate) + len(rows))
    level = 40 + 4 * rows.dose.astype(float) - 2 * (rows.pH.astype(float) - 7) ** 2
    return np.round(level + {"P1": 0.0, "P2": 3.0, "P3": -2.0}[plate] + rng.normal(size=len(rows)), 2)


def fill(path, plate, column=None):
    """A person fills in the file of `ask`: results, and the plate."""
    rows = tables.read(path).table.to_pandas()
    rows["viability"] = measured(rows, plate)
    rows[column or "plate"] = plate
    return rows


def excel(rows, path):
    book = openpyxl.Workbook()
    book.active.append(list(rows.columns))
    for row in rows.astype(object).where(rows.notna(), None).itertuples(index=False):
        book.active.append(list(row))
    book.save(path)


def before(command, folder):
    """What the person did since the last command."""
    if command.endswith("tell screen.db plate-1.xlsx") and not (folder / "told").exists():
        rows = fill(folder / "plate-1.xlsx", "P1")
        rows.loc[3, "viability"] = 44138.0  # a slip of the decimal point
        excel(rows, folder / "plate-1.xlsx")
        (folder / "told").touch()
    if command.endswith("tell screen.db slip.csv --correct"):
        rows = fill(folder / "plate-1.xlsx", "P1").loc[[3], ["Compound ID", "viability", "plate", "replicate"]]
        rows.assign(viability=44.138).to_csv(folder / "slip.csv", index=False)
    if command.endswith("tell screen.db plate-2.csv") and not (folder / "p2").exists():
        rows = fill(folder / "plate-2.csv", "P2").assign(plate="p1")
        rows.loc[0, ["viability", "status"]] = [None, "failed"]
        rows.to_csv(folder / "plate-2.csv", index=False, sep=";", decimal=",")
        (folder / "p2").touch()
    elif command.endswith("tell screen.db plate-2.csv"):
        text = (folder / "plate-2.csv").read_text()
        (folder / "plate-2.csv").write_text(text.replace(";p1;", ";P2;"))
    if command.endswith("tell screen.db reader.csv"):
        rows = fill(folder / "plate-3.xlsx", "P3")
        rows.loc[rows["Compound ID"] == "DMSO", "viability"] = 38.0
        rows[["well", "viability", "plate"]].to_csv(folder / "reader.csv", index=False)


def transcript(text, folder):
    """Every command of the page, what the page says of it, and what it said."""
    excel(candidates(), folder / "compounds.xlsx")
    for block in re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            before(command, folder)
            _, out, err = run(*shlex.split(command)[1:])
            yield command, expected, out + err


@pytest.mark.slow
def test_the_first_hour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AICAU_AUTHOR", "ada")
    said = list(transcript(PAGE.read_text(encoding="utf-8"), tmp_path))
    assert len(said) >= 15
    for command, expected, got in said:
        assert got == expected, f"{command}\n{got}"
    with Campaign.open("screen.db") as campaign:
        status = campaign.status()
        assert (status["measurements"], status["failed_wells"], status["batches"]) == (31, 1, 3)
        assert campaign.warnings() == []
        assert all(check.ok for check in campaign.doctor())
    predicted = tables.read("predictions.xlsx").table.to_pandas()
    truth = 40 + 4 * candidates().dose - 2 * (candidates().pH - 7) ** 2
    assert np.corrcoef(predicted["mean"], truth)[0, 1] > 0.9
