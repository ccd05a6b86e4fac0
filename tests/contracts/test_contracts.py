"""One suite per extension point, run on every name in its folder: a new entry is found by itself."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest
import torch

from aicau import Evidence, Score, Strategy, View
from aicau.acquisition import ACQUISITIONS
from aicau.batching import BATCHINGS
from aicau.bias import BIASES
from aicau.core import streams
from aicau.core.omega import Omega
from aicau.ensembles import ENSEMBLES
from aicau.problems import PROBLEMS


def evidence_of(small):
    problem, observations, predictions, keys = small
    return Evidence(problem.pool.x, observations, predictions, keys, None, lambda count: problem.truth.expand(2, -1))


def view_of(small):
    problem, observations, predictions, keys = small
    counts = observations.counts(problem.pool.n)
    cobias = BIASES["direct"]().estimate(evidence_of(small))
    return View(problem.pool.coordinates, counts == 0, counts > 0, keys, predictions, cobias)


@pytest.mark.parametrize("entry", [*ACQUISITIONS.values(), *BATCHINGS.values(), *BIASES.values(), *ENSEMBLES.values()])
def test_parts_are_frozen_and_comparable(entry):
    part = entry()
    assert is_dataclass(part)
    assert part == entry()
    assert hash(part) == hash(entry())
    for field in fields(part)[:1]:
        with pytest.raises(FrozenInstanceError):
            setattr(part, field.name, None)


@pytest.mark.parametrize("name", PROBLEMS)
class TestProblem:
    def test_truth_noise_and_measurements_fit_together(self, name):
        problem = PROBLEMS[name](grid=6)
        n, keys = problem.pool.n, streams.runs(0, 3)
        assert problem.truth.shape == problem.aleatoric.shape == problem.capacity.shape == (n,)
        assert problem.noise(keys[:, None]).shape == (3, 1, n)
        assert torch.equal(problem.noise(keys[:2, None]), problem.noise(keys[:, None])[:2])
        index = torch.arange(4).expand(3, 4)
        y = problem.measure(index, torch.zeros_like(index), keys, 1)
        assert y.dtype == torch.double
        assert torch.equal(y, problem.measure(index, torch.zeros_like(index), keys, 1))
        assert problem.realisations(2, keys).shape == (3, 2, n)

    def test_noise_has_the_variance_the_problem_states(self, name):
        problem = PROBLEMS[name](grid=6)
        draws = problem.noise(streams.runs(0, 3000)[:, None])[:, 0]
        torch.testing.assert_close(draws.var(0), problem.aleatoric, rtol=0.2, atol=1e-12)


@pytest.mark.parametrize("name", ENSEMBLES)
class TestEnsemble:
    def test_fit_then_predict(self, name):
        x, keys = torch.rand(2, 3, 11, 2).double(), streams.runs(0, 3).expand(2, 3)
        fitted = ENSEMBLES[name]().fit(x, x.sum(-1), keys)
        out = fitted.predict(torch.rand(7, 2).double())
        members = out.shape[-2]
        assert out.shape == (2, 3, members, 7)
        assert fitted.unseen.shape == (2, 3, members, 11)
        assert torch.isfinite(out).all()

    def test_a_run_does_not_depend_on_its_neighbours(self, name):
        x, keys = torch.rand(4, 11, 2).double(), streams.runs(0, 4)
        at = torch.rand(9, 2).double()
        whole = ENSEMBLES[name]().fit(x, x.sum(-1), keys).predict(at)
        part = ENSEMBLES[name]().fit(x[2:3], x[2:3].sum(-1), keys[2:3]).predict(at)
        assert torch.equal(whole[2:3], part)

    def test_one_row_is_enough(self, name):
        out = ENSEMBLES[name]().fit(torch.rand(1, 1, 2), torch.ones(1, 1), streams.runs(0, 1)).predict(torch.rand(5, 2))
        assert torch.isfinite(out).all()


@pytest.mark.parametrize("name", BIASES)
class TestBias:
    def test_gives_a_finite_matrix_over_the_pool(self, small, name):
        cobias = BIASES[name]().estimate(evidence_of(small))
        assert isinstance(cobias, Omega)
        assert cobias.factor.shape[:2] == (2, 144)
        assert torch.isfinite(cobias.diagonal()).all()
        assert float(cobias.diagonal().min()) > -1e-5

    def test_a_run_does_not_depend_on_its_neighbours(self, small, name):
        problem, observations, predictions, keys = small
        one = Evidence(
            problem.pool.x, observations[1:], predictions[1:], keys[1:], None, lambda count: problem.truth.expand(1, -1)
        )
        whole = BIASES[name]().estimate(evidence_of(small))
        assert torch.equal(BIASES[name]().estimate(one).factor, whole.factor[1:])


@pytest.mark.parametrize("name", ACQUISITIONS)
class TestAcquisition:
    def test_alpha_is_the_diagonal_of_its_matrix(self, small, name):
        score = ACQUISITIONS[name]().score(view_of(small))
        assert score.alpha.shape == (2, 144)
        assert torch.isfinite(score.alpha).all()
        if score.omega is not None:
            dense = score.omega.dense().diagonal(dim1=-2, dim2=-1)
            torch.testing.assert_close(score.alpha, dense, rtol=1e-4, atol=1e-6)

    def test_is_a_strategy_word(self, name):
        acquisition = ACQUISITIONS[name]()
        text = f"{name}:direct" if acquisition.needs_bias else name
        assert Strategy.parse(text).acquisition == acquisition


@pytest.mark.parametrize("name", BATCHINGS)
class TestBatching:
    @pytest.mark.parametrize("m", [1, 5, 40])
    def test_gives_distinct_allowed_points(self, small, name, m):
        view = view_of(small)
        score = ACQUISITIONS["pemse"]().score(view)
        chosen = BATCHINGS[name]().select(score, view, m)
        assert chosen.shape == (2, m)
        for run in range(2):
            assert len(set(chosen[run].tolist())) == m
            assert view.allowed[run, chosen[run]].all()

    def test_a_run_does_not_depend_on_its_neighbours_and_survives_nan(self, small, name):
        view = view_of(small)
        score = ACQUISITIONS["pemse"]().score(view)
        whole = Strategy.parse(f"pemse:direct:{name}").choose(view, 4)[0]
        assert torch.equal(BATCHINGS[name]().select(score[1:], view[1:], 4), whole[1:])
        broken = Score(torch.full_like(score.alpha, torch.nan), score.omega)
        assert len(set(BATCHINGS[name]().select(broken, view, 4)[0].tolist())) == 4
