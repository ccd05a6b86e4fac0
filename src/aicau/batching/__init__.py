"""Batching rules by name; a new one is one file and one line here."""

from aicau.batching.base import Batching, Selection
from aicau.batching.eigen import Eigen
from aicau.batching.gain import Gain
from aicau.batching.spread import Spread
from aicau.batching.top import Top

BATCHINGS: dict[str, type[Batching]] = {
    "top": Top,
    "eigen": Eigen,
    "spread": Spread,
    "gain": Gain,
}
