"""Models that a prediction is combined from, beside the networks; a new one is one file and one line here.

Each is fitted to the means of measured points, weighed by how often a point was measured, and says what it predicts of
every point without the fold that the point is in. What it keeps are tensors, and nothing of the pool.
"""

from aicau.prediction.models.base import LeftOut, Model, Points
from aicau.prediction.models.mean import MeanModel
from aicau.prediction.models.process import ProcessModel
from aicau.prediction.models.ranks import RanksModel, knots_of
from aicau.prediction.models.trees import TreesModel
from aicau.prediction.models.warped import WarpedModel

MODELS: dict[str, type[Model]] = {
    "process": ProcessModel,
    "ranks": RanksModel,
    "warped": WarpedModel,
    "trees": TreesModel,
    "mean": MeanModel,
}
