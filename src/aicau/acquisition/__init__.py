"""Acquisition functions by name; a new one is one file and one entry here."""

from aicau.acquisition.bald import Bald
from aicau.acquisition.base import CHANGES, Acquisition, Score, View
from aicau.acquisition.br import BiasReduction
from aicau.acquisition.farthest import Farthest
from aicau.acquisition.lc import LeastConfidence
from aicau.acquisition.pemse import Pemse
from aicau.acquisition.random import Random

ACQUISITIONS: dict[str, type[Acquisition]] = {
    "random": Random,
    "farthest": Farthest,
    "lc": LeastConfidence,
    "bald": Bald,
    "br": BiasReduction,
    "pemse": Pemse,
}

__all__ = ["ACQUISITIONS", "CHANGES", "Acquisition", "Score", "View"]
