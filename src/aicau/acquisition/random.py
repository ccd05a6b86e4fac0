"""Random selection: α is constant, and ties are broken at random."""

from dataclasses import dataclass
from typing import ClassVar

from aicau.acquisition.base import Score, View
from aicau.core import streams
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Random:
    needs_model: ClassVar[bool] = False
    needs_bias: ClassVar[bool] = False
    batching: ClassVar[str | None] = "top"
    meaning: ClassVar[str] = "a random number"
    in_error: ClassVar[bool] = False

    def score(self, view: View) -> Score:
        return Score(streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]))
