"""aicau: choose the next batch of experiments when noise differs from place to place and is shared within a batch.

Public names are loaded when they are first used, so that `aicau --help` starts without PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aicau import bias, problems
    from aicau.acquisition import Score, View
    from aicau.batching import Eigen, Spread, Top
    from aicau.bias import Direct, Evidence, Perfect, Quadratic
    from aicau.campaign.campaign import Campaign
    from aicau.core import bregman, streams
    from aicau.core.decomposition import (
        difference,
        emse,
        epistemic,
        omega_bias_first,
        omega_together,
        omega_uncorrelated,
        pemse,
    )
    from aicau.core.errors import AicauError
    from aicau.core.observations import Observations
    from aicau.core.omega import Omega
    from aicau.core.pool import Pool
    from aicau.ensembles import MLP, Members, Modules, PosteriorSamples, Regressors
    from aicau.problems import Problem, TableProblem
    from aicau.simulation.simulate import Result, simulate
    from aicau.strategy import Strategy

__version__ = "0.1.0"

_HOME = {
    "AicauError": "core.errors",
    "Campaign": "campaign.campaign",
    "Direct": "bias",
    "Eigen": "batching",
    "Evidence": "bias",
    "MLP": "ensembles",
    "Members": "ensembles",
    "Modules": "ensembles",
    "Observations": "core.observations",
    "Omega": "core.omega",
    "Perfect": "bias",
    "Pool": "core.pool",
    "PosteriorSamples": "ensembles",
    "Problem": "problems",
    "Quadratic": "bias",
    "Regressors": "ensembles",
    "Result": "simulation.simulate",
    "Score": "acquisition",
    "Spread": "batching",
    "Strategy": "strategy",
    "TableProblem": "problems",
    "Top": "batching",
    "View": "acquisition",
    "difference": "core.decomposition",
    "emse": "core.decomposition",
    "epistemic": "core.decomposition",
    "omega_bias_first": "core.decomposition",
    "omega_together": "core.decomposition",
    "omega_uncorrelated": "core.decomposition",
    "pemse": "core.decomposition",
    "simulate": "simulation.simulate",
}
_MODULES = {"bias": "bias", "bregman": "core.bregman", "problems": "problems", "streams": "core.streams"}

__all__ = [
    "MLP",
    "AicauError",
    "Campaign",
    "Direct",
    "Eigen",
    "Evidence",
    "Members",
    "Modules",
    "Observations",
    "Omega",
    "Perfect",
    "Pool",
    "PosteriorSamples",
    "Problem",
    "Quadratic",
    "Regressors",
    "Result",
    "Score",
    "Spread",
    "Strategy",
    "TableProblem",
    "Top",
    "View",
    "bias",
    "bregman",
    "difference",
    "emse",
    "epistemic",
    "omega_bias_first",
    "omega_together",
    "omega_uncorrelated",
    "pemse",
    "problems",
    "simulate",
    "streams",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"aicau.{_MODULES[name]}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"aicau.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'aicau' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
