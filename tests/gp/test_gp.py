import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from aicau import gp, problems
from aicau.core import streams
from aicau.gp.optimise import alone, together


def log_likelihood(theta, x, y, alpha=1e-6):
    """log p(y) with its constant, for unpadded rows: what scikit-learn calls log_marginal_likelihood."""
    rows = gp.Rows(x, y, torch.ones_like(y, dtype=torch.bool), torch.full_like(y, alpha))
    return -gp.negative_log_likelihood(theta, rows)[0] - 0.5 * y.shape[-1] * np.log(2 * np.pi)


def sample(seed, rows):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 4)) * [6.28, 6.28, 1, 0.1]
    return x, 0.3 * np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * x[:, 2], rng.random((50, 4)) * [6.28, 6.28, 1, 0.1]


def sklearn_fit(x, y, theta=None):
    """Scikit-learn's process; its own optimum, or at our parameters."""
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
    if theta is not None:
        kernel.theta = theta.numpy()
    optimiser = "fmin_l_bfgs_b" if theta is None else None
    return GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, optimizer=optimiser).fit(x, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("seed", "rows"), [(0, 12), (1, 30), (2, 60), (3, 110)])
def test_equals_scikit_learn(seed, rows):
    x, y, at = sample(seed, rows)
    theirs = sklearn_fit(x, y)
    valid = torch.ones(1, rows, dtype=torch.bool)
    ours = gp.fit(torch.tensor(x)[None], torch.tensor(y)[None], valid)
    normal = torch.tensor((y - y.mean()) / y.std())[None]
    likelihood = float(log_likelihood(ours.theta, torch.tensor(x)[None], normal))
    assert likelihood > theirs.log_marginal_likelihood_value_ - 1e-3
    same = sklearn_fit(x, y, ours.theta[0])
    assert likelihood == pytest.approx(same.log_marginal_likelihood_value_, abs=1e-5)
    np.testing.assert_allclose(ours.mean(torch.tensor(at)[None])[0].numpy(), same.predict(at), atol=1e-6)


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
    assert float(log_likelihood(torch.tensor(theta)[None], torch.tensor(x)[None], normal)) == pytest.approx(value)
    np.testing.assert_allclose(-ours[0].numpy(), gradient, rtol=1e-6)


def test_padded_rows_change_nothing():
    x, y, at = sample(5, 20)
    x, y, at = torch.tensor(x)[None], torch.tensor(y)[None], torch.tensor(at)[None]
    plain = gp.fit(x, y, torch.ones(1, 20, dtype=torch.bool)).mean(at)
    junk = torch.cat([x, 100 * torch.ones(1, 7, 4)], 1), torch.cat([y, 9 * torch.ones(1, 7)], 1)
    padded = gp.fit(*junk, torch.arange(27)[None] < 20).mean(at)
    torch.testing.assert_close(padded, plain, rtol=1e-6, atol=1e-8)


def test_a_run_is_the_same_bit_for_bit_however_many_are_fitted_with_it():
    samples = [sample(seed, 25) for seed in range(4)]
    x, y = (torch.tensor(np.stack([s[i] for s in samples])) for i in range(2))
    valid = torch.ones(4, 25, dtype=torch.bool)
    valid[1, 20:] = False
    whole = gp.fit(x, y, valid)
    for runs in ([0], [1], [3, 1]):
        some = gp.fit(x[runs], y[runs], valid[runs])
        assert torch.equal(some.theta, whole.theta[runs])
        assert torch.equal(some.weights, whole.weights[runs])


def noisy(seed, rows, features, error):
    """A wave over a box, the noise from none to half the signal."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, features)) * 6.28
    y = np.sin(1.5 * x[:, 0]) * np.sin(1.5 * x[:, 1]) + error * rng.standard_normal(rows)
    return x, y


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("rows", "features", "error"),
    [(10, 2, 0.05), (10, 4, 0.3), (30, 2, 0.3), (30, 4, 0.05), (100, 2, 0.05), (100, 4, 0.3), (200, 2, 0.05)],
)
def test_the_optimum_under_noise_is_no_worse_than_scikit_learns_with_restarts(rows, features, error):
    x, y = noisy(rows, rows, features, error)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * features, (1e-2, 1e2))
    theirs = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, n_restarts_optimizer=5, random_state=0).fit(
        x, y
    )
    x, y = torch.tensor(x)[None], torch.tensor((y - y.mean()) / y.std())[None]
    ours = gp.fit(x, y, torch.ones(1, rows, dtype=torch.bool))
    assert float(log_likelihood(ours.theta, x, y)) > theirs.log_marginal_likelihood_value_ - 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kind", "rows"), [("type2", 10), ("type3", 10), ("type2", 20), ("type3", 50), ("type2", 100)])
def test_the_optimum_on_residuals_of_the_toy_is_no_worse_than_scikit_learns_with_restarts(kind, rows):
    """A smooth model of few points leaves residuals with many optima: two starts lost up to 6."""
    problem = problems.make(kind)
    keys = streams.runs(1, 1)
    index = streams.permutation(keys, problem.pool.n)[:, :rows]
    x = problem.pool.x[index]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    smooth = torch.sin(x[..., :1]) * torch.tensor([0.4, 0.2]).double()
    side = torch.cat([x, smooth[..., :1], smooth[..., 1:] ** 2], -1)
    y = y - smooth[..., 0]
    y = (y - y.mean()) / y.std(correction=0)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
    theirs = GaussianProcessRegressor(kernel, alpha=1e-6, n_restarts_optimizer=5, random_state=0)
    theirs.fit(side[0].numpy(), y[0].numpy())
    ours = gp.fit(side, y, torch.ones(1, rows, dtype=torch.bool))
    assert float(log_likelihood(ours.theta, side, y)) > theirs.log_marginal_likelihood_value_ - 0.5


@pytest.mark.parametrize("most", [None, 40])
def test_padded_rows_are_not_counted_when_rows_are_thinned(most):
    x, y, _ = sample(9, 50)
    padded_x, padded_y = torch.zeros(1, 2050, 4).double(), torch.zeros(1, 2050).double()
    place = torch.arange(50) * 40
    padded_x[0, place], padded_y[0, place] = torch.tensor(x), torch.tensor(y)
    valid = torch.zeros(1, 2050, dtype=torch.bool)
    valid[0, place] = True
    rows = gp.Rows(padded_x, padded_y, valid, torch.full_like(padded_y, 1e-6)).thin(most or 512)
    assert rows.valid.tolist() == [[True] * (most or 50)]
    expected = y if most is None else y[np.arange(40) * 49 // 39]
    assert rows.y[0].tolist() == expected.tolist()
    if most is None:
        alone = gp.fit(torch.tensor(x)[None], torch.tensor(y)[None], torch.ones(1, 50, dtype=torch.bool))
        assert torch.equal(gp.fit(padded_x, padded_y, valid).theta, alone.theta)


def test_runs_of_different_length_are_thinned_each_by_itself():
    y = torch.arange(8.0).expand(2, -1)
    valid = torch.tensor([[True] * 8, [True, False] * 3 + [False] * 2])
    rows = gp.Rows(y[..., None], y, valid, torch.zeros(2, 8)).thin(4)
    assert rows.y[0].tolist() == [0, 2, 4, 7]
    assert rows.y[1][rows.valid[1]].tolist() == [0, 2, 4]


@pytest.mark.parametrize("unit", [1e-200, 1e-20, 1.0, 1e20])
def test_the_unit_of_the_target_does_not_matter(unit):
    x, y, at = sample(10, 20)
    x, y, at = torch.tensor(x)[None], torch.tensor(y)[None], torch.tensor(at)[None]
    valid = torch.ones(1, 20, dtype=torch.bool)
    plain, scaled = gp.fit(x, y, valid), gp.fit(x, unit * y, valid)
    assert float(scaled.scale) == pytest.approx(unit * float(y.std(correction=0)), rel=1e-9)
    torch.testing.assert_close(scaled.mean(at) / unit, plain.mean(at), rtol=1e-4, atol=1e-6)


def test_rounding_errors_around_a_large_value_are_not_a_signal():
    y = 1e6 + 1e-10 * torch.arange(6.0).double()[None] ** 2
    fitted = gp.fit(torch.rand(1, 6, 2).double(), y, torch.ones(1, 6, dtype=torch.bool))
    assert float(fitted.scale) == pytest.approx(1.0)


def test_one_point_and_a_constant_target_give_the_constant():
    one = gp.fit(torch.zeros(1, 1, 4).double(), torch.tensor([[0.7]]).double(), torch.ones(1, 1, dtype=torch.bool))
    assert one.mean(torch.rand(1, 5, 4).double())[0].tolist() == pytest.approx([0.7] * 5)
    same = gp.fit(torch.zeros(1, 6, 4).double(), torch.full((1, 6), 0.2).double(), torch.ones(1, 6, dtype=torch.bool))
    assert same.mean(torch.rand(1, 5, 4).double())[0].tolist() == pytest.approx([0.2] * 5)


def by_both(function, starts, lower, upper):
    """Minimisers found by L-BFGS-B run by run, and by the optimiser of all runs at once."""
    bounds = torch.full((2,), lower).double(), torch.full((2,), upper).double()
    starts = torch.tensor(starts).double()
    return torch.cat([alone(function, start, *bounds)[0] for start in starts]), together(function, starts, *bounds)[0]


def test_the_box_is_respected():
    def bowl(theta):
        target = torch.tensor([[5.0, 0.5]], dtype=torch.double)
        return ((theta - target) ** 2).sum(-1), 2 * (theta - target)

    for found in by_both(bowl, [[0.0, 0.0]], -1.0, 1.0):
        assert found[0].tolist() == pytest.approx([1.0, 0.5], abs=1e-6)


def test_a_curved_valley_is_followed_to_its_end(monkeypatch):
    def rosenbrock(t):
        a, b = t[:, 0], t[:, 1]
        value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
        return value, torch.stack([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)], -1)

    monkeypatch.setattr("aicau.gp.optimise.VALUE_TOLERANCE", 0.0)
    for found in by_both(rosenbrock, [[-1.2, 1.0], [2.0, -2.0]], -3.0, 3.0):
        np.testing.assert_allclose(found.numpy(), 1.0, atol=1e-4)


def test_many_runs_at_once_reach_the_optimum_of_one():
    samples = [noisy(seed, 40, 2, 0.1) for seed in range(3)]
    x, y = (torch.tensor(np.stack([s[i] for s in samples])) for i in range(2))
    process = gp.Process(noise=True, constant=1.0, signal_prior=(0.0, 1.0), length_prior=(0.0, 1.0))
    fitted = process.fit(x, y, torch.ones(3, 40, dtype=torch.bool))
    bounds = torch.full((4,), -9.0).double(), torch.full((4,), 4.0).double()
    start = torch.tensor([0.0, 0.0, 0.0, -2.0]).double().expand(3, -1)
    found, value = together(lambda t: process.objective(t, fitted.rows), start, *bounds)
    torch.testing.assert_close(value, process.objective(fitted.theta, fitted.rows)[0], rtol=0, atol=1e-3)
    torch.testing.assert_close(found, fitted.theta, rtol=0, atol=1e-2)


def batched_rows(fades):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 14, 2, generator=generator, dtype=torch.double) * 3
    y = torch.randn(2, 14, generator=generator, dtype=torch.double)
    valid = torch.ones(2, 14, dtype=torch.bool)
    valid[1, -3:] = False
    relative = torch.rand(2, 14, generator=generator, dtype=torch.double) + 0.5
    batch = (torch.arange(14) % 3).expand(2, -1)
    return gp.Rows(x, y * valid, valid, torch.full_like(y, 1e-3), relative, batch, fades, 0.7)


@pytest.mark.parametrize("fades", [False, True])
def test_gradient_by_every_parameter(fades):
    rows = batched_rows(fades)
    process = gp.Process(
        noise=True, fades=fades, signal_prior=(0.2, 1.0), length_prior=(0.1, 0.7), noise_prior=(-2.0, 1.0)
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
    dense = (fitted.rows.prior(fitted.theta, at, at) - half.mT @ half) * fitted.scale[..., None, None] ** 2
    factor, rest = fitted.factor(at, fitted.pivots(at, 50))
    torch.testing.assert_close(factor @ factor.mT + torch.diag_embed(rest), dense, rtol=1e-4, atol=1e-6)
    factor, rest = fitted.factor(at, fitted.pivots(at, 6))
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


@pytest.mark.parametrize(("shape", "linear"), [("matern", 0.25), ("rbf", 0.0)])
def test_single_precision_is_the_same_to_its_rounding(shape, linear):
    draw = torch.Generator().manual_seed(5)
    x = torch.rand(1, 300, 4, generator=draw).double() * 3
    y = torch.sin(2 * x[..., 0]) + 0.3 * torch.randn(1, 300, generator=draw).double()
    process = gp.Process(noise=True, constant=10.0, signal_prior=(0.0, 1.0), shape=shape, linear=linear)
    fitted = process.fit(x, y, torch.ones_like(y, dtype=torch.bool), most=100)
    at = torch.rand(1, 500, 4, generator=draw) * 3
    for few, exact in zip(fitted.both(at), fitted.both(at.double()), strict=True):
        assert few.dtype == torch.double
        torch.testing.assert_close(few, exact, rtol=2e-3, atol=1e-4)
    assert not torch.equal(fitted.mean(at), fitted.mean(at.double()))


def test_where_rounding_would_matter_nothing_is_rounded():
    """Hardly any noise: weights are large and cancel."""
    x = torch.linspace(0, 1, 60).double()[None, :, None]
    fitted = gp.Process(alpha=1e-8).fit(x, torch.sin(9 * x[..., 0]), torch.ones(1, 60, dtype=torch.bool))
    at = torch.rand(1, 50, 1)
    assert torch.equal(fitted.mean(at), fitted.mean(at.double()))


def test_many_rows_begin_with_half_of_them_and_find_the_same_optimum(monkeypatch):
    x, y = noisy(3, 420, 2, 0.3)
    rows = torch.tensor(x)[None], torch.tensor(y)[None], torch.ones(1, 420, dtype=torch.bool)
    process = gp.Process(noise=True, constant=1.0, signal_prior=(0.0, 1.0), length_prior=(0.0, 1.0))
    seen = []
    whole = gp.Process.objective
    monkeypatch.setattr(
        gp.Process, "objective", lambda self, t, rows: seen.append(rows.y.numel()) or whole(self, t, rows)
    )
    halved = process.fit(*rows)
    assert set(seen) == {210, 420}
    monkeypatch.setattr("aicau.gp.process.COARSE", 500)
    plain = process.fit(*rows)
    one, other = (float(process.objective(each.theta, each.rows)[0]) for each in (halved, plain))
    assert one == pytest.approx(other, abs=0.02)
    at = torch.tensor(x[:50])[None]
    torch.testing.assert_close(halved.mean(at), plain.mean(at), rtol=0, atol=0.01)
    seen.clear()
    monkeypatch.setattr("aicau.gp.process.COARSE", 200)
    process.fit(*rows, near=plain.theta)
    assert set(seen) == {420}  # who starts near the optimum needs no half
