"""What is handed out after a round: one object per task, by name; a new one is one file and one line here."""

from aicau.core.errors import unknown
from aicau.prediction.base import PARTS, Check, Figures, Outcome, Prediction, Predictor, State
from aicau.prediction.classification import Classification, ClassPrediction
from aicau.prediction.count import Count, CountPrediction
from aicau.prediction.regression import Regression, ValuePrediction

OUTCOMES: dict[str, Outcome] = {
    "regression": Regression(),
    "classification": Classification(),
    "count": Count(),
}


def outcome(name: str) -> Outcome:
    """The object of a task, by the task's name."""
    if name not in OUTCOMES:
        raise unknown("task", name, list(OUTCOMES))
    return OUTCOMES[name]


__all__ = [
    "OUTCOMES",
    "PARTS",
    "Check",
    "ClassPrediction",
    "CountPrediction",
    "Figures",
    "Outcome",
    "Prediction",
    "Predictor",
    "State",
    "ValuePrediction",
    "outcome",
]
