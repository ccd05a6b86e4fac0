"""Shared by all tests: one small problem, one trained ensemble, and where the real data sets may lie."""

import os
import sys
from pathlib import Path

# Two processes test on two cores: threads of the one would wait for the cores of the other. Read by what is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from aicau.core import streams
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from aicau.problems import type2

sys.path.insert(0, str(Path(__file__).parent))  # helpers that several test files share


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with real data sets: $AICAU_DATA, or shared/data beside the checkout."""
    folder = Path(os.environ.get("AICAU_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data sets at {folder.name}: set AICAU_DATA to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def small():
    """Type II on a 12 × 12 grid, two runs of 20 measurements (some repeated), and the ensemble trained on them."""
    problem = type2(grid=12)
    keys = streams.runs(3, 2)
    index = streams.permutation(keys, problem.pool.n)[:, :16]
    index = torch.cat([index, index[:, :4]], -1)
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    observations = Observations(index, y, torch.zeros(20, dtype=torch.int64))
    fitted = MLP(settings=MLPSettings(max_epochs=60)).fit(problem.pool.x[index], y, keys)
    return problem, observations, fitted.predict(problem.pool.x), keys


@pytest.fixture(scope="session")
def postgres():
    """A function that makes a fresh database on a server of our own."""
    from postgres import server

    with server() as fresh:
        if fresh is None:
            pytest.skip("no PostgreSQL server binaries here, or no other user to run them as")
        yield fresh


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    """Where a new campaign can live, once on each database."""
    if request.param == "sqlite":
        return str(tmp_path / "campaign.db")
    return request.getfixturevalue("postgres")()
