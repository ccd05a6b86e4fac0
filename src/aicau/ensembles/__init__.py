"""Ensembles by name; a new one is one file and one entry here."""

from aicau.ensembles.base import Ensemble, Fitted
from aicau.ensembles.estimators import Members, Modules, PosteriorSamples, Regressors
from aicau.ensembles.mlp import MLP

ENSEMBLES = {"paper": MLP}

__all__ = ["ENSEMBLES", "MLP", "Ensemble", "Fitted", "Members", "Modules", "PosteriorSamples", "Regressors"]
