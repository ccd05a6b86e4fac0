"""Ensembles F_k by name; a new one is one file and one line here."""

from collections.abc import Callable

from aicau.core.errors import InputError, unknown
from aicau.core.task import REGRESSION, Task
from aicau.ensembles.base import Ensemble, Fitted
from aicau.ensembles.mlp import MLP
from aicau.ensembles.modules import Modules, PosteriorSamples
from aicau.ensembles.process import Process
from aicau.ensembles.scikit import Classifiers, Members, Regressors

ENSEMBLES: dict[str, Callable[[], Ensemble]] = {"paper": MLP, "process": Process}


def make(name: str = "paper", task: Task = REGRESSION) -> Ensemble:
    """An ensemble by its name, e.g. `make("process")`; the networks are there for every task."""
    if name not in ENSEMBLES:
        raise unknown("ensemble", name, list(ENSEMBLES))
    if name == "paper":
        return MLP(task=task)
    if not task.squared:
        raise InputError(f"ensemble {name!r} is for regression only; leave it out for {task.name}")
    return ENSEMBLES[name]()
