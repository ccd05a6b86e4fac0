"""Direct estimation of τ, draws of Appendix D from measurements, Σ_Y of the toy, the second aim of Figure 1."""

import math

import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from aicau import Evidence, Observations, omega_together, omega_uncorrelated, problems
from aicau.bias import Tau
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.task import Task


def evidence(task=Task("regression")):  # noqa: B008
    g = torch.Generator().manual_seed(0)
    x = torch.rand(40, 2, generator=g).double()
    predictions = torch.sin(3 * x[:, 0]) + 0.1 * torch.randn(1, 5, 40, generator=g).double()
    index = torch.arange(0, 40, 3)[None]
    y = torch.sin(3 * x[index[0], 0])[None] + x[index[0], 1]
    rows = Observations(index, y, torch.zeros(index.shape[-1], dtype=torch.int64))
    return Evidence(x, rows, predictions, streams.runs(0, 1), task=task)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tau_equals_scikit_learns_process_on_tau():
    known = evidence()
    seen, residual = known.residuals()
    side = known.side_information()[0].double()
    spread = decomposition.epistemic(known.predictions)[0].double()
    tau = spread[seen.index[0]] + residual[0] ** 2
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
    model = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, n_restarts_optimizer=9, random_state=0)
    model.fit(side[seen.index[0]].numpy(), tau.numpy())
    found = Tau().estimate(known)
    rest = torch.ones(40, dtype=torch.bool)
    rest[seen.index[0]] = False
    expected = (torch.from_numpy(model.predict(side.numpy())) - spread).clamp_min(0)
    torch.testing.assert_close(found.diagonal()[0, rest].double(), expected[rest], rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(found.diagonal()[0, seen.index[0]].double(), residual[0] ** 2, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="use direct or posterior"):
        Tau().believe(evidence(Task("count")))


def test_measurements_become_the_draws_of_appendix_d():
    index = torch.tensor([[0, 1, 0, 2, 0, 0]])
    y = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]).double()
    rows = Observations(index, y, torch.tensor([0, 0, 1, 1, 2, 2]))
    draws = rows.draws(4)
    nan = math.nan
    expected = [[1.0, 2.0, nan, nan], [3.0, nan, 4.0, nan], [5.0, nan, nan, nan], [6.0, nan, nan, nan]]
    torch.testing.assert_close(draws, torch.tensor(expected).double(), equal_nan=True)
    members = torch.zeros(2, 4)
    assert float(omega_together(members, draws)[0, 1]) == pytest.approx(2.0)  # only round 0 holds both
    assert float(omega_uncorrelated(members.double(), draws)[0, 1]) == pytest.approx(3.75 * 2.0)
    assert bool(omega_together(members, draws)[1, 2].isnan())


@pytest.mark.parametrize("kind", ["type1", "type2", "type3"])
def test_the_covariance_of_the_noise_is_that_of_its_draws(kind):
    problem = problems.make(kind, grid=6)
    dense = problem.noise_covariance().dense()
    torch.testing.assert_close(dense.diagonal(), problem.aleatoric, rtol=1e-6, atol=1e-9)
    apart = torch.exp(-2 * torch.cdist(problem.pool.x, problem.pool.x) / math.pi) if kind == "type3" else torch.eye(36)
    torch.testing.assert_close(dense, apart * problem.sigma[:, None] * problem.sigma, rtol=1e-5, atol=1e-9)
    drawn = problem.noise(streams.runs(0, 20_000))
    torch.testing.assert_close(drawn.mT @ drawn / 20_000, dense, rtol=0, atol=5e-4)


def test_members_as_spread_as_measurements_reach_the_second_aim():
    members = torch.tensor([[-1.0, 0.0], [1.0, 4.0]])
    # A square of a rounded root: on some processors 1 is 0.99999994.
    assert float(decomposition.spread_error(members, torch.tensor([1.0, 4.0]))) == pytest.approx(0.0, abs=1e-13)
    assert float(decomposition.spread_error(members, torch.tensor([0.0, 4.0]))) == pytest.approx(0.5)
