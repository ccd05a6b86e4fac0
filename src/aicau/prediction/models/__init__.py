"""Models that a prediction is combined from, beside the networks; a new one is one file and one line here.

Each is fitted to the means of measured points, weighed by how often a point was measured, and says what it predicts of
every point without the fold that the point is in. What it keeps are tensors, and nothing of the pool.
"""

from functools import partial

from torch import Tensor

from aicau.prediction.models.base import Kind, LeftOut, Model, Points
from aicau.prediction.models.mean import MeanModel
from aicau.prediction.models.process import ProcessModel
from aicau.prediction.models.ranks import RanksModel, knots_of
from aicau.prediction.models.trees import TreesModel
from aicau.prediction.models.warped import WarpedModel


def _load_trees(tensors: dict[str, Tensor]) -> TreesModel:
    return TreesModel(**tensors)


MODELS: dict[str, Kind] = {
    "process": Kind(  # with a linear trend under it
        partial(ProcessModel.fit, shape="matern", trend=1.0), partial(ProcessModel.load, shape="matern", trend=1.0)
    ),
    "ranks": Kind(
        partial(RanksModel.fit, shape="matern", trend=1.0), partial(RanksModel.load, shape="matern", trend=1.0)
    ),
    "warped": Kind(partial(WarpedModel.fit, shape="matern"), partial(WarpedModel.load, shape="matern")),
    "trees": Kind(TreesModel.fit, _load_trees),
    "mean": Kind(MeanModel.fit, MeanModel.load),
}

__all__ = [
    "MODELS",
    "Kind",
    "LeftOut",
    "MeanModel",
    "Model",
    "Points",
    "ProcessModel",
    "RanksModel",
    "TreesModel",
    "WarpedModel",
    "knots_of",
]
