"""Ensembles by name; a new one is one file and one entry here."""

from collections.abc import Callable

from aicau.core.task import VALUES, Task
from aicau.ensembles.auto import Auto, Scaled
from aicau.ensembles.base import Ensemble, Fitted
from aicau.ensembles.classifiers import Classifiers, ClassModules
from aicau.ensembles.estimators import Members, Modules, PosteriorSamples, Regressors
from aicau.ensembles.heads import MLPClassifier, MLPCounts
from aicau.ensembles.mlp import MLP
from aicau.ensembles.process import Process

ENSEMBLES: dict[str, Callable[[], Ensemble]] = {"paper": MLP, "process": Process, "auto": Auto}


def of_task(task: Task = VALUES) -> Ensemble:
    """The paper's networks with the head that the task needs."""
    if task.kind == "classes":
        return MLPClassifier(task.classes)
    return MLPCounts() if task.kind == "counts" else MLP()


__all__ = [
    "ENSEMBLES",
    "MLP",
    "Auto",
    "ClassModules",
    "Classifiers",
    "Ensemble",
    "Fitted",
    "MLPClassifier",
    "MLPCounts",
    "Members",
    "Modules",
    "PosteriorSamples",
    "Process",
    "Regressors",
    "Scaled",
    "of_task",
]
