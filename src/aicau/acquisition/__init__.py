"""Acquisition functions by name; a new one is one file and one entry here."""

from aicau.acquisition.bald import Bald
from aicau.acquisition.base import CHANGES, Acquisition, Lesson, Score, View
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
}

CLASS_ACQUISITIONS: dict[str, type[Acquisition]] = {
    "entropy": Entropy,
    "margin": Margin,
    "trust": Trust,
}  # of classes only

__all__ = ["ACQUISITIONS", "CHANGES", "CLASS_ACQUISITIONS", "FORMS", "Acquisition", "Lesson", "Score", "View"]
