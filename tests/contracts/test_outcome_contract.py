"""Every kind of measurement: what is handed out after a round, checked, kept and read again."""

import json

import numpy as np
import pytest
import torch

from aicau.prediction import OUTCOMES, PARTS, Figures
from aicau.prediction import outcome as by_name

LABELS = ["a", "b", "c"]


@pytest.mark.parametrize("name", OUTCOMES)
class TestOutcome:
    @pytest.fixture
    def handed_out(self, fitted, name):
        return fitted[name], *fitted[name].handed_out

    def test_is_found_by_the_name_of_its_task(self, fitted, name):
        outcome = by_name(name)
        assert outcome.name == name
        assert outcome.task(LABELS) == fitted[name].state.task
        assert outcome.too_few(LABELS) == ""

    def test_columns_are_finite_and_some_candidates_are_those_of_all(self, handed_out):
        _, state, predictor = handed_out
        whole = predictor.predict(state).columns()
        at = torch.tensor([7, 3, 99])
        some = predictor.predict(state, at).columns()
        assert list(some) == list(whole)
        assert set(PARTS) <= set(whole)
        for column, values in whole.items():
            assert values.shape == (100,)
            if values.dtype != object:
                assert np.isfinite(values).all(), column
                np.testing.assert_allclose(some[column], values[at.numpy()], rtol=1e-9, atol=1e-12)
            else:
                assert some[column].tolist() == values[at.numpy()].tolist()
        for part in PARTS:
            assert whole[part].min() >= 0, part

    def test_summary_is_of_one_candidate(self, handed_out):
        _, state, predictor = handed_out
        prediction = predictor.predict(state)
        words, said = prediction.summary(5)
        assert words.startswith("predicted")
        assert "nan" not in words
        for part in PARTS:
            assert said[part] == pytest.approx(float(prediction.columns()[part][5]))

    def test_new_measurements_are_checked(self, handed_out):
        one, state, predictor = handed_out
        index, y = one.rows.index[1], one.rows.y[1]
        new = [LABELS[int(value)] for value in y] if state.task.probabilities else y.tolist()
        check = predictor.predict(state, index).check(new)
        assert check.loss.shape == (24,)
        assert check.stated.shape == check.true.shape
        assert np.isfinite(check.loss).all()
        assert (check.loss >= 0).all()
        assert ((check.stated >= 0) & (check.stated <= 1)).all()

    def test_what_is_kept_predicts_the_same_bits(self, handed_out, name):
        _, state, predictor = handed_out
        kept = (predictor.words(), predictor.figures.to_json())
        words, figures = json.loads(json.dumps(kept, allow_nan=False))
        again = OUTCOMES[name].predictor.load(predictor.tensors(), words, Figures.from_json(figures))
        assert again.figures == predictor.figures
        before, after = predictor.predict(state).columns(), again.predict(state).columns()
        for column, values in before.items():
            np.testing.assert_array_equal(after[column], values)

    def test_figures_count_the_measurements(self, handed_out):
        figures = handed_out[2].figures
        assert (figures.points, figures.measurements, figures.freedom) == (20, 24, 4)
        assert 0 <= figures.skill <= 1
        assert figures.error > 0
        for part in PARTS:
            assert getattr(figures, part) >= 0
