import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from aicau import gp
from aicau.gp.optimise import minimise


def sample(seed, rows):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 4)) * [6.28, 6.28, 1, 0.1]
    return x, 0.3 * np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * x[:, 2], rng.random((50, 4)) * [6.28, 6.28, 1, 0.1]


def sklearn_fit(x, y):
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
    return GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True).fit(x, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("seed", "rows"), [(0, 12), (1, 30), (2, 60), (3, 110)])
def test_equals_scikit_learn(seed, rows):
    x, y, at = sample(seed, rows)
    theirs = sklearn_fit(x, y)
    valid = torch.ones(1, rows, dtype=torch.bool)
    ours = gp.fit(torch.tensor(x)[None], torch.tensor(y)[None], valid)
    normal = torch.tensor((y - y.mean()) / y.std())[None]
    likelihood = float(gp.log_likelihood(ours.theta, torch.tensor(x)[None], normal))
    assert likelihood == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-3)
    np.testing.assert_allclose(ours.mean(torch.tensor(at)[None])[0].numpy(), theirs.predict(at), atol=2e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_likelihood_and_gradient_equal_scikit_learn():
    x, y, _ = sample(4, 25)
    model = sklearn_fit(x, y)
    theta = np.array([0.3, -0.2, 0.5, 1.0, -0.7])
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    normal = torch.tensor((y - y.mean()) / y.std())[None]
    rows = gp.Rows(
        torch.tensor(x)[None], normal, torch.ones(1, 25, dtype=torch.bool), torch.full((1, 25), 1e-6).double()
    )
    _, ours = gp.negative_log_likelihood(torch.tensor(theta)[None], rows)
    assert float(gp.log_likelihood(torch.tensor(theta)[None], torch.tensor(x)[None], normal)) == pytest.approx(value)
    np.testing.assert_allclose(-ours[0].numpy(), gradient, rtol=1e-6)


def test_padded_rows_change_nothing():
    x, y, at = sample(5, 20)
    x, y, at = torch.tensor(x)[None], torch.tensor(y)[None], torch.tensor(at)[None]
    plain = gp.fit(x, y, torch.ones(1, 20, dtype=torch.bool)).mean(at)
    junk = torch.cat([x, 100 * torch.ones(1, 7, 4)], 1), torch.cat([y, 9 * torch.ones(1, 7)], 1)
    padded = gp.fit(*junk, torch.arange(27)[None] < 20).mean(at)
    torch.testing.assert_close(padded, plain, rtol=1e-6, atol=1e-8)


def test_runs_computed_together_equal_runs_alone():
    samples = [sample(seed, 25) for seed in range(3)]
    x, y = (torch.tensor(np.stack([s[i] for s in samples])) for i in range(2))
    valid = torch.ones(3, 25, dtype=torch.bool)
    together = gp.fit(x, y, valid).theta
    alone = torch.cat([gp.fit(x[i : i + 1], y[i : i + 1], valid[:1]).theta for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3)


def test_one_point_and_a_constant_target_give_the_constant():
    one = gp.fit(torch.zeros(1, 1, 4).double(), torch.tensor([[0.7]]).double(), torch.ones(1, 1, dtype=torch.bool))
    assert one.mean(torch.rand(1, 5, 4).double())[0].tolist() == pytest.approx([0.7] * 5)
    same = gp.fit(torch.zeros(1, 6, 4).double(), torch.full((1, 6), 0.2).double(), torch.ones(1, 6, dtype=torch.bool))
    assert same.mean(torch.rand(1, 5, 4).double())[0].tolist() == pytest.approx([0.2] * 5)


def test_the_box_is_respected():
    def bowl(theta):
        target = torch.tensor([[5.0, 0.5]], dtype=torch.double)
        return ((theta - target) ** 2).sum(-1), 2 * (theta - target)

    bounds = torch.tensor([-1.0, -1.0]).double(), torch.tensor([1.0, 1.0]).double()
    found = minimise(bowl, torch.zeros(1, 2).double(), *bounds)
    assert found[0].tolist() == pytest.approx([1.0, 0.5], abs=1e-6)


def test_a_curved_valley_is_followed_to_its_end():
    def rosenbrock(t):
        a, b = t[:, 0], t[:, 1]
        value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
        return value, torch.stack([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)], -1)

    bounds = torch.full((2,), -3.0).double(), torch.full((2,), 3.0).double()
    found = minimise(rosenbrock, torch.tensor([[-1.2, 1.0], [2.0, -2.0]]).double(), *bounds, value_tolerance=0.0)
    np.testing.assert_allclose(found.numpy(), 1.0, atol=1e-4)


def batched_rows(shape, fades):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 14, 2, generator=generator, dtype=torch.double) * 3
    y = torch.randn(2, 14, generator=generator, dtype=torch.double)
    valid = torch.ones(2, 14, dtype=torch.bool)
    valid[1, -3:] = False
    relative = torch.rand(2, 14, generator=generator, dtype=torch.double) + 0.5
    batch = (torch.arange(14) % 3).expand(2, -1)
    return gp.Rows(x, y * valid, valid, torch.full_like(y, 1e-3), relative, batch, fades, shape, 0.7)


@pytest.mark.parametrize("shape", gp.SHAPES)
@pytest.mark.parametrize("fades", [False, True])
def test_gradient_by_every_parameter(shape, fades):
    rows = batched_rows(shape, fades)
    process = gp.Process(
        shape, noise=True, fades=fades, signal_prior=(0.2, 1.0), length_prior=(0.1, 0.7), noise_prior=(-2.0, 1.0)
    )
    theta = torch.linspace(-0.4, 0.5, 5 + fades, dtype=torch.double).expand(2, -1)
    _, gradient = process.objective(theta, rows)
    for j in range(theta.shape[-1]):
        step = torch.zeros_like(theta)
        step[:, j] = 1e-5
        slope = (process.objective(theta + step, rows)[0] - process.objective(theta - step, rows)[0]) / 2e-5
        torch.testing.assert_close(slope, gradient[:, j], rtol=1e-6, atol=1e-7)


def test_left_out_rows_equal_a_posterior_without_them():
    x, y, _ = sample(6, 15)
    rows = torch.tensor(x)[None], torch.tensor(y)[None]
    whole = gp.Process(noise=True).fit(*rows, torch.ones(1, 15, dtype=torch.bool))
    mean, variance = whole.left_out()
    k = gp.covariance(whole.theta, whole.rows)[0][0]
    for i in (0, 7):
        keep = torch.arange(15) != i
        weights = torch.linalg.solve(k[keep][:, keep], k[keep, i])
        expected = float(weights @ whole.rows.y[0, keep] * whole.scale[0] + whole.shift[0])
        assert float(mean[0, i]) == pytest.approx(expected, rel=1e-6)
        left = float((k[i, i] - k[i, keep] @ weights) * whole.scale[0] ** 2)
        assert float(variance[0, i]) == pytest.approx(left, rel=1e-5)


def test_the_factor_of_the_posterior_is_its_covariance():
    x, y, at = sample(7, 20)
    fitted = gp.Process(noise=True, constant=2.0).fit(
        torch.tensor(x)[None], torch.tensor(y)[None], torch.ones(1, 20, dtype=torch.bool)
    )
    at = torch.tensor(at)[None]
    half = fitted._half(at)
    dense = (fitted._prior_between(at, at) - half.mT @ half) * fitted.scale[..., None, None] ** 2
    factor, rest = fitted.factor(at, 50)
    torch.testing.assert_close(factor @ factor.mT + torch.diag_embed(rest), dense, rtol=1e-4, atol=1e-6)
    factor, rest = fitted.factor(at, 6)
    torch.testing.assert_close((factor**2).sum(-1) + rest, dense.diagonal(dim1=-2, dim2=-1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(fitted.variance(at), dense.diagonal(dim1=-2, dim2=-1), rtol=1e-6, atol=1e-9)
    assert float(rest.min()) >= 0


def test_parameters_from_some_rows_posterior_from_all():
    x, y, at = sample(8, 90)
    rows = torch.tensor(x)[None], torch.tensor(y)[None], torch.ones(1, 90, dtype=torch.bool)
    some, whole = gp.Process(noise=True).fit(*rows, most=45), gp.Process(noise=True).fit(*rows)
    assert some.weights.shape == (1, 90)
    at = torch.tensor(at)[None]
    torch.testing.assert_close(some.mean(at), whole.mean(at), rtol=0.2, atol=0.05)
