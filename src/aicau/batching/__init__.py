"""Batching rules by name; a new one is one file and one entry here."""

from aicau.batching.base import Batching
from aicau.batching.eigen import Eigen
from aicau.batching.spread import Spread
from aicau.batching.top import Top

BATCHINGS: dict[str, type[Batching]] = {"top": Top, "eigen": Eigen, "spread": Spread}

__all__ = ["BATCHINGS", "Batching", "Eigen", "Spread", "Top"]
