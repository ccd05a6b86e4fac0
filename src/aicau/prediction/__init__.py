"""What is handed out after a round: one predictor per task, by name; a new one is one file and one entry here."""

from aicau.core.errors import unknown
from aicau.prediction.base import PARTS, Check, Figures, Outcome, Prediction, Predictor, State
from aicau.prediction.classification import ClassPrediction, ClassPredictor
from aicau.prediction.count import CountPrediction, CountPredictor
from aicau.prediction.regression import ValuePrediction, ValuePredictor

OUTCOMES = {
    one.name: one
    for one in (
        Outcome("regression", "A measurement is a number", ValuePredictor),
        Outcome("classification", "A measurement is one of some labels", ClassPredictor, labelled=True),
        Outcome("count", "A measurement is a whole number from 0", CountPredictor),
    )
}


def outcome(name: str) -> Outcome:
    """The object of a task, by the task's name."""
    if name not in OUTCOMES:
        raise unknown("task", name, list(OUTCOMES))
    return OUTCOMES[name]
