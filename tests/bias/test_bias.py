from dataclasses import replace

import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from aicau import Direct, Evidence, Observations, Perfect, Quadratic, gp
from aicau.bias import Posterior, skill
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.ensembles.kernels import EmbeddingSettings

QUICK = Quadratic(EmbeddingSettings(max_epochs=40))


def evidence_of(small, **extra):
    problem, observations, predictions, keys = small
    return Evidence(problem.pool.x, observations, predictions, keys, **extra)


def test_residuals_are_mean_over_members_minus_mean_over_measurements(small):
    _problem, observations, predictions, _ = small
    seen, residual = evidence_of(small).residuals()
    point = int(observations.index[0, 0])
    rows = observations.index[0] == point
    slot = (seen.index[0] == point) & seen.valid[0]
    expected = predictions[0, :, point].double().mean() - observations.y[0, rows].mean()
    assert int(seen.count[0, slot]) == int(rows.sum())
    assert float(residual[0, slot]) == pytest.approx(float(expected), abs=1e-6)


def test_perfect_is_the_truth_or_the_mean_of_realisations(small):
    problem, _, predictions, _ = small
    known = problem.truth.expand(2, -1)
    cobias = Perfect().estimate(evidence_of(small, oracle=lambda count: known))
    bias = decomposition.mean(predictions).double() - known
    torch.testing.assert_close(cobias.diagonal().double(), bias**2, atol=1e-6, rtol=1e-4)
    with pytest.raises(InputError, match="perfect information needs a problem"):
        Perfect().estimate(evidence_of(small))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_direct_equals_scikit_learn_where_nothing_was_measured_and_keeps_what_was(small):
    evidence = evidence_of(small)
    cobias = Direct().estimate(evidence)
    assert cobias.factor.shape == (2, 144, 1)
    seen, residual = evidence.residuals()
    side = evidence.side_information().double()
    for run in range(2):
        rows = seen.index[run][seen.valid[run]]
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
        values = residual[run][seen.valid[run]]
        found = gp.fit(side[None, run, rows], values[None], torch.ones(1, len(rows), dtype=torch.bool))
        kernel.theta = found.theta[0].numpy()  # the best optimum, which a single start of theirs does not always find
        model = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, optimizer=None)
        model.fit(side[run, rows].numpy(), values.numpy())
        expected = torch.as_tensor(model.predict(side[run].numpy()))
        expected[rows] = residual[run][seen.valid[run]]
        torch.testing.assert_close(cobias.factor[run, :, 0].double(), expected, atol=2e-3, rtol=1e-2)


def test_quadratic_keeps_measured_entries_and_is_low_rank(small):
    evidence = evidence_of(small)
    cobias = QUICK.estimate(evidence)
    assert cobias.factor.shape == (2, 144, 2 * 16 + 1)
    seen, residual = evidence.residuals()
    dense = cobias.dense()
    for run in range(2):
        rows, values = seen.index[run][seen.valid[run]], residual[run][seen.valid[run]].float()
        torch.testing.assert_close(dense[run][rows][:, rows], values[:, None] * values, atol=1e-5, rtol=1e-4)
    free = torch.ones(144, dtype=torch.bool)
    free[seen.index[0][seen.valid[0]]] = False
    assert float(torch.linalg.eigvalsh(dense[0][free][:, free]).min()) > -1e-5  # ψψᵀ elsewhere


def test_quadratic_learns_a_cobias_that_is_there():
    """Residuals of one sign on the left, the other on the right: Q must see that the two sides disagree."""
    x = torch.rand(80, 1, dtype=torch.double, generator=torch.Generator().manual_seed(0)) * 2 - 1
    bias = torch.sign(x[:, 0])
    predictions = torch.zeros(1, 5, 80)
    index = torch.arange(60)[None]
    observations = Observations(index, -bias[index], torch.zeros(60, dtype=torch.int64))
    settings = EmbeddingSettings(learning_rate=3e-3, betas=(0.9, 0.999), max_epochs=500)
    dense = Quadratic(settings).estimate(Evidence(x, observations, predictions, streams.runs(0, 1))).dense()[0]
    new = torch.arange(60, 80)
    expected = bias[new][:, None] * bias[new]
    clear = x[new, 0].abs() > 0.2
    assert float((torch.sign(dense[new][:, new]) == expected)[clear][:, clear].double().mean()) > 0.95


def test_measured_entries_keep_their_observed_values(small):
    evidence = evidence_of(small)
    a = Quadratic(EmbeddingSettings(max_epochs=40)).estimate(evidence)
    seen, residual = evidence.residuals()
    at = seen.index[0][seen.valid[0]]
    torch.testing.assert_close(a.diagonal()[0, at].double(), residual[0][seen.valid[0]] ** 2, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("estimator", [Direct(), QUICK])
def test_one_measured_point_is_enough_to_answer(small, estimator):
    problem, observations, predictions, keys = small
    one = Observations(observations.index[:, :1], observations.y[:, :1], observations.round[:1])
    cobias = estimator.estimate(Evidence(problem.pool.x, one, predictions, keys))
    assert torch.isfinite(cobias.diagonal()).all()
    point = int(one.index[0, 0])
    residual = float(predictions[0, :, point].mean() - one.y[0, 0])
    assert float(cobias.diagonal()[0, point]) == pytest.approx(residual**2, rel=1e-3)


def test_crossfitted_residuals_come_from_members_that_never_saw_the_row(small):
    _, observations, predictions, _ = small
    unseen = torch.zeros(2, predictions.shape[1], observations.rows, dtype=torch.bool)
    unseen[:, 2, 5] = True
    residual = evidence_of(small, unseen=unseen).crossfitted()
    point = int(observations.index[1, 5])
    assert float(residual[1, 5]) == pytest.approx(
        float(predictions[1, 2, point]) - float(observations.y[1, 5]), abs=1e-6
    )
    other = int(observations.index[1, 6])
    expected = float(predictions[1, :, other].double().mean() - observations.y[1, 6])
    assert float(residual[1, 6]) == pytest.approx(expected, abs=1e-6)


def test_skill_is_the_share_of_the_variance_that_members_explain_of_rows_they_did_not_see(small):
    problem, o, _, keys = small
    right = torch.randn(2, 1, 144, generator=torch.Generator().manual_seed(1)).expand(-1, 2, -1)
    y = right[:, 0].gather(-1, o.index).double()
    observations = Observations(o.index, y, o.round)
    unseen = torch.zeros(2, 2, observations.rows, dtype=torch.bool)
    unseen[:, 0, ::2], unseen[:, 1, 1::2] = True, True
    evidence = Evidence(problem.pool.x, observations, right, keys, unseen)
    torch.testing.assert_close(skill(evidence), torch.ones(2).double())
    off = replace(evidence, predictions=right + float(y[0].std(correction=0)) / 2)
    assert float(skill(off)[0]) == pytest.approx(0.75, abs=1e-4)
    assert float(skill(replace(evidence, predictions=right + 100.0)).max()) == 0
    # A member that saw a row says nothing about it, and where all saw all nobody knows.
    wild = right.clone()
    wild[0, 1, o.index[0, 0]] = 1e6
    seen = unseen & (o.index == o.index[0, 0]).logical_not()[:, None]
    assert float(skill(replace(evidence, predictions=wild, unseen=seen))[0]) == pytest.approx(1.0)
    assert float(skill(replace(evidence, unseen=None)).max()) == 0
    assert float(skill(replace(evidence, unseen=torch.zeros_like(unseen))).max()) == 0


def test_posterior_is_a_second_moment_that_grows_away_from_data(small):
    problem, observations, _, _ = small
    found = Posterior(target="truth").moments(evidence_of(small))
    dense = Posterior(target="truth").estimate(evidence_of(small)).dense()[0].double()
    mean = found.mean[0]
    torch.testing.assert_close(dense.diagonal(), mean**2 + found.variance()[0], rtol=1e-3, atol=1e-5)
    distance = torch.cdist(problem.pool.x, problem.pool.x[observations.index[0]]).amin(-1)
    near, far = found.variance()[0][distance < 0.3].mean(), found.variance()[0][distance > 1.2].mean()
    assert float(far) > 2 * float(near)


def test_a_replicate_lowers_what_is_unknown(small):
    problem, observations, predictions, keys = small
    more = observations.append(observations.index[:, :8], observations.y[:, :8], 1)
    once = Posterior(target="truth", batches="none").moments(evidence_of(small)).variance()
    twice = (
        Posterior(target="truth", batches="none").moments(Evidence(problem.pool.x, more, predictions, keys)).variance()
    )
    at = observations.index[0, :8]
    assert float(twice[0, at].mean()) < float(once[0, at].mean())


def test_posterior_knows_its_words():
    with pytest.raises(InputError, match="target"):
        Posterior(target="bias")
    with pytest.raises(InputError, match="batches"):
        Posterior(batches="plates")


def test_posterior_of_a_run_does_not_depend_on_the_replicates_and_batches_of_another(small):
    problem, observations, predictions, keys = small
    index, batch = observations.index.clone(), observations.batch.clone()
    index[1, 16:] = index[1, 15]  # the second run has one replicated point, the first four and one more
    index[0, 15] = index[0, 4]
    batch[1, 10:] = 1
    mixed = Observations(index, observations.y, observations.round, batch)
    together = Posterior().moments(Evidence(problem.pool.x, mixed, predictions, keys))
    for run in range(2):
        some = slice(run, run + 1)
        alone = Posterior().moments(Evidence(problem.pool.x, mixed[some], predictions[some], keys[some]))
        assert torch.equal(alone.mean[0], together.mean[run])
        assert torch.equal(alone.aleatoric[0], together.aleatoric[run])
