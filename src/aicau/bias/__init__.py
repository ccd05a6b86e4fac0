"""Bias estimators by name; a new one is one file and one entry here."""

from aicau.bias.base import Belief, BiasEstimator, Evidence, assess
from aicau.bias.correction import Correction
from aicau.bias.direct import Direct, Tau
from aicau.bias.perfect import Perfect
from aicau.bias.posterior import Posterior
from aicau.bias.quadratic import Quadratic
from aicau.bias.skill import skill

BIASES: dict[str, type[BiasEstimator]] = {
    "perfect": Perfect,
    "direct": Direct,
    "quadratic": Quadratic,
    "tau": Tau,
    "posterior": Posterior,
}
