"""Real data sets as problems: a folder of CSV files becomes a table that is replayed.

Two layouts. Replicated sets have `x.csv` (one row per point: `x_id`, `num_*`, `cat_*`) and `data.csv` (one row per
measurement: `x_id`, `y`, perhaps `batch` or `date`). Plain sets have `data.csv` alone, with features and `y`; rows with
equal features are replicates of one point. Both files may be packed (`.csv.gz`).

Rows marked `is_control` (wells for calibration) or `is_copy` (a value copied from another source) are left out: neither
is a measurement that one could have asked for. With a `date` column a round of the replay is one day.
"""

import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from aicau.core import checks
from aicau.core.errors import InputError
from aicau.core.files import reason
from aicau.core.pool import standardise as standardised
from aicau.problems.table import TableProblem

LEFT_OUT = ("is_control", "is_copy")


def load(folder: str | Path, most: int = 2000, seed: int = 0, standardise: bool = True) -> TableProblem:
    """The problem in a folder, with at most `most` points of its pool, drawn with `seed`.

    Features are standardised over the pool (categories as one-hot columns). With `standardise` so is y, by the mean and
    standard deviation of the points' means: an error of 1 is then that of predicting the mean.
    """
    folder = Path(folder)
    checks.positive(most, "most", least=2)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder with a data set")
    data = _read(folder, "data")
    if data is None:
        raise InputError(f"{folder} holds no data set: it needs data.csv or data.csv.gz")
    points = _read(folder, "x")
    _need(data, ["y"] if points is None else ["x_id", "y"], folder, "data")
    for word in LEFT_OUT:
        if word in data:
            data = data[pd.to_numeric(data[word], errors="coerce").fillna(0) == 0]
    points, ids = _plain(data, folder) if points is None else _replicated(data, points, folder)
    y = pd.to_numeric(data["y"], errors="coerce")
    if not np.isfinite(y).all():
        raise InputError(f"{folder}: y must be finite numbers; {int((~np.isfinite(y)).sum())} of {len(y)} are not")
    if points.empty:
        raise InputError(f"{folder}: no measurement is left to replay")
    if len(points) > most:
        kept = np.random.default_rng(seed).choice(len(points), most, replace=False)
        points = points.iloc[np.sort(kept)]
    chosen = ids.isin(points.index).to_numpy()
    data, ids, y = data[chosen], ids[chosen], y[chosen]
    if standardise:
        means = y.groupby(ids.to_numpy()).mean()
        spread = float(means.std(ddof=0))
        y = (y - means.mean()) / (spread if spread > 0 else 1.0)
    column = next((name for name in ("date", "batch") if name in data), None)
    batch = None if column is None else data[column].astype(str).tolist()
    x = standardised(checks.features(_numeric(points, folder).to_numpy()))
    rows = ids.tolist(), y.to_numpy(), batch
    return TableProblem.from_arrays(folder.name, x, points.index.tolist(), *rows, daily=column == "date")


def folders(data: str | Path) -> list[Path]:
    """The folder itself where it is a data set, else every folder in it, by name."""
    data = Path(data)
    if not data.is_dir():
        raise InputError(f"{data} is not a folder; --data takes one that holds a data set or several")
    if any((data / f"data.csv{end}").exists() for end in ("", ".gz")):
        return [data]
    found = sorted(path for path in data.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise InputError(f"{data} holds no data set: it needs data.csv, or folders with one each")
    return found


def _read(folder: Path, name: str) -> pd.DataFrame | None:
    path = next((p for p in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if p.exists()), None)
    if path is None:
        return None
    try:
        return pd.read_csv(path, low_memory=False)
    except (ValueError, OSError, EOFError, zlib.error) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"{path} cannot be read as a table ({reason(error)})") from error


def _need(table: pd.DataFrame, columns: list[str], folder: Path, name: str) -> None:
    if missing := [column for column in columns if column not in table]:
        raise InputError(f"{folder}: {name}.csv has no column {', '.join(missing)}")


def _features(table: pd.DataFrame, folder: Path, name: str) -> list[str]:
    found = [column for column in map(str, table) if column.startswith(("num_", "cat_"))]
    if not found:
        raise InputError(f"{folder}: {name}.csv has no features (columns num_* or cat_*)")
    empty = table[found].isna().any()
    if empty.any():
        raise InputError(f"{folder}: feature {empty.idxmax()} of {name}.csv has empty entries")
    return found


def _replicated(data: pd.DataFrame, points: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Layout A: features of the points that were measured, by id; the id of each measurement."""
    _need(points, ["x_id"], folder, "x")
    if points["x_id"].isna().any() or points["x_id"].duplicated().any():
        raise InputError(f"{folder}: every x_id of x.csv must stand there once")
    table = points.set_index("x_id")[_features(points, folder, "x")]
    unknown = ~data["x_id"].isin(table.index)
    if unknown.any():
        first = data["x_id"][unknown].iloc[0]
        raise InputError(f"{folder}: {int(unknown.sum())} rows of data.csv have an x_id not in x.csv, e.g. {first}")
    return table[table.index.isin(data["x_id"])], data["x_id"]


def _plain(data: pd.DataFrame, folder: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Layout B: rows with equal features are one point."""
    names = _features(data, folder, "data")
    ids = data.groupby(names, sort=False).ngroup()
    return data[names].set_axis(ids, axis=0)[~ids.duplicated().to_numpy()], ids


def _numeric(points: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Numbers as they are, categories as one column per word."""
    numbers = [column for column in map(str, points) if column.startswith("num_")]
    table = points[numbers].apply(pd.to_numeric, errors="coerce")
    wrong = ~np.isfinite(table).all()
    if wrong.any():
        raise InputError(f"{folder}: feature {wrong.idxmax()} must be finite numbers")
    words = points.drop(columns=numbers)
    if words.shape[1]:
        table = pd.concat([table, pd.get_dummies(words.astype(str), dtype=float)], axis=1)
    return table.astype(float)
