"""aicau: choose the next batch of experiments when noise differs from place to place and plates share part of it.

The round, which a campaign, `simulate` and `query` all run (aicau/round.py):

    measurements ─► what plates share is taken out ─► ensemble F_k ─► bias ─► score ─► batch with reasons
                                                          └──► prediction

A laboratory starts at `Campaign`, a researcher at `simulate` and `Strategy`, an engineer with a model at `query` and
`predict`. Below stands every public name, once; each is loaded when it is first used, so that `aicau --help` starts
without PyTorch.
"""

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # A laboratory
    from aicau.campaign.campaign import Campaign

    # The round
    from aicau.round import Round
    from aicau.strategy import Choice, Strategy
    from aicau.arrays import predict, query

    # Comparisons
    from aicau.simulation.simulate import Result, simulate
    from aicau import problems
    from aicau.problems import Problem, TableProblem

    # F_k
    from aicau.ensembles import MLP, Classifiers, Members, Modules, PosteriorSamples, Process
    from aicau.ensembles import Regressors

    # The bias, scores and batches
    from aicau import bias
    from aicau.bias import Direct, Evidence, Perfect, Posterior, Quadratic
    from aicau.acquisition import Score, View
    from aicau.batching import Eigen, Gain, Selection, Spread, Top

    # Predictions
    from aicau.prediction import ClassPrediction, CountPrediction, ValuePrediction

    # The mathematics
    from aicau.core import bregman, streams
    from aicau.core.decomposition import difference, emse, epistemic, pemse
    from aicau.core.decomposition import omega_bias_first, omega_together, omega_uncorrelated
    from aicau.core.engine import Engine
    from aicau.core.errors import AicauError
    from aicau.core.observations import Observations
    from aicau.core.omega import Omega
    from aicau.core.pool import Pool
    from aicau.core.task import Task

__version__ = "0.2.0"


def _map() -> dict[str, str]:
    """Where each name above comes from."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOME = _map()
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'aicau' has no attribute {name!r}")
    home = _HOME[name]
    if home in ("aicau", "aicau.core"):
        value: Any = importlib.import_module(f"{home}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
