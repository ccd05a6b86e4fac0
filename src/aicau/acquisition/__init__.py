"""Acquisition functions by name; a new one is one file and one line here."""

from aicau.acquisition.base import Acquisition, Score, View
from aicau.acquisition.table1 import Bald, BiasReduction, Epistemic, Farthest, LeastConfidence, Pemse, Random
from aicau.acquisition.terms import FORMS
from aicau.acquisition.uncertainty import Entropy, Margin, Trust

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
