"""Acquisition functions by name; a new one is one file and one line here."""

from aicau.acquisition.bald import Bald
from aicau.acquisition.base import Acquisition, Score, View
from aicau.acquisition.br import BiasReduction
from aicau.acquisition.epistemic import Epistemic
from aicau.acquisition.farthest import Farthest
from aicau.acquisition.lc import LeastConfidence
from aicau.acquisition.pemse import Pemse
from aicau.acquisition.random import Random
from aicau.acquisition.terms import FORMS
from aicau.acquisition.trust import Trust
from aicau.acquisition.uncertainty import Entropy, Margin

ACQUISITIONS: dict[str, type[Acquisition]] = {
    "random": Random,
    "farthest": Farthest,
    "lc": LeastConfidence,
    "bald": Bald,
    "epistemic": Epistemic,
    "br": BiasReduction,
    "pemse": Pemse,
    "entropy": Entropy,  # these three for classification only
    "margin": Margin,
    "trust": Trust,
}
