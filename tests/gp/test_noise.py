"""Noise that changes with x, against simulated truths."""

import torch

from aicau.gp import noise


def uneven(rows=120):
    """A line in x, without replicates; the noise on the right is ten times that on the left."""
    generator = torch.Generator().manual_seed(4)
    x = torch.linspace(-1.7, 1.7, rows).double()[None, :, None]
    size = torch.where(x[..., 0] < 0, 0.05, 0.5)
    return x, x[..., 0] + size * torch.randn(1, rows, generator=generator).double()


def test_noise_that_changes_with_x_is_found_without_replicates():
    x, y = uneven()
    found = noise.fit(x, y, local=True)
    assert torch.isfinite(found.width).all()
    at = torch.tensor([[[-1.0], [1.0]]]).double()
    left, right = found.variance_at(at)[0].tolist()
    assert right > 5 * left
    assert noise.fit(x, y).variance_at(at)[0].unique().numel() == 1
    # Where the noise is the same everywhere, one variance is left as it is.
    even = torch.sin(2 * x[..., 0]) + 0.3 * torch.randn(1, 120, generator=torch.Generator().manual_seed(5)).double()
    one, other = noise.fit(x, even, local=True), noise.fit(x, even)
    assert torch.isinf(one.width).all()
    assert torch.equal(one.posterior.theta, other.posterior.theta)
    assert torch.equal(one.variance_at(at), other.variance_at(at))


def test_a_left_out_row_does_not_speak_for_its_own_noise():
    x, y = uneven()
    y[0, 20] += 1.0  # twenty times the noise there
    found = noise.fit(x, y, local=True)
    mean, variance = found.left_out()
    plain, given = found.posterior.left_out()
    assert torch.equal(mean, plain)
    assert float(variance[0, 20]) < float(given[0, 20])
    one = noise.fit(x, y)
    torch.testing.assert_close(one.left_out()[1], one.posterior.left_out()[1])


def test_fitted_parameters_are_allowed_for():
    x, y = uneven()
    batch = torch.arange(120)[None] // 10
    assert noise.fit(x, y).inflated() == 120 / 116  # the mean, the signal, a length and the noise
    assert noise.fit(x, y, batch).inflated() == 120 / 114
    assert noise.fit(x, y, batch, fades=False).inflated() == 120 / 115
    assert noise.fit(x[:, :6], y[:, :6]).inflated() == 2  # never more than double
