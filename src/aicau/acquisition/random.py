"""Random selection: α is constant, and ties are broken at random."""

from dataclasses import dataclass

from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import streams
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Random(Acquisition):
    needs_model = False
    batching = "top"
    meaning = "a random number"

    def score(self, view: View) -> Score:
        return Score(streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]))
