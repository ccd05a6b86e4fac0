"""Batching rules by name; a new one is one file and one entry here."""

from aicau.batching.base import Batching
from aicau.batching.conditional import Conditional
from aicau.batching.eigen import Eigen
from aicau.batching.joint import Joint
from aicau.batching.power import Power
from aicau.batching.rehearsed import Rehearsed
from aicau.batching.spread import Spread
from aicau.batching.top import Top

BATCHINGS: dict[str, type[Batching]] = {
    "top": Top,
    "eigen": Eigen,
    "spread": Spread,
    "joint": Joint,
    "rehearsed": Rehearsed,
    "conditional": Conditional,
    "power": Power,
}

__all__ = ["BATCHINGS", "Batching", "Conditional", "Eigen", "Joint", "Power", "Rehearsed", "Spread", "Top"]
