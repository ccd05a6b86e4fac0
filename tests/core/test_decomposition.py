"""Identities of the paper on sampled data, to rounding."""

import itertools

import pytest
import torch

from aicau.core import decomposition as d
from aicau.core.errors import InputError
from aicau.core.omega import Omega


@pytest.fixture
def sample():
    g = torch.Generator().manual_seed(0)
    members = torch.randn(6, 9, generator=g, dtype=torch.double)
    draws = torch.randn(40, 9, generator=g, dtype=torch.double) * 0.3 + 1
    return members, draws


def test_bias_variance_tradeoff(sample):
    """Eq. bvt: E[(F − Y)²] over all pairs of members and draws is the sum of the three parts."""
    members, draws = sample
    left = ((members[:, None] - draws[None]) ** 2).mean((0, 1))
    bias = d.mean(members) - draws.mean(0)
    torch.testing.assert_close(d.pemse(members, bias, draws.var(0, correction=0)), left)
    torch.testing.assert_close(d.emse(left), left.mean())


def test_cobias_covariance_tradeoff(sample):
    """Eq. cbvt: E[(F − Y)(F* − Y*)] is Σ_F + Δ + Σ_Y, entry by entry; tr Ω / n is the EMSE."""
    members, draws = sample
    error = (members[:, None] - draws[None]).flatten(0, 1)
    left = error.mT @ error / error.shape[0]
    noise = Omega((draws - draws.mean(0)).mT / draws.shape[0] ** 0.5)
    omega = d.omega_bias_first(members, draws.mean(0), noise)
    torch.testing.assert_close(omega.dense(), left)
    torch.testing.assert_close(omega.trace() / 9, d.emse((error**2).mean(0)))


def test_covariance_and_cobias_by_hand():
    members = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert d.covariance(members).dense().tolist() == pytest.approx(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).numpy())
    assert d.epistemic(members).tolist() == pytest.approx([1, 1])
    assert d.cobias(torch.tensor([2.0, -1.0])).dense().tolist() == [[4, -2], [-2, 1]]


def test_the_difference_cancels_the_noise():
    noise = Omega(torch.rand(5, 3, dtype=torch.double))
    a, b = Omega(torch.rand(5, 2, dtype=torch.double)), Omega(torch.rand(5, 2, dtype=torch.double))
    torch.testing.assert_close(d.difference(a + noise, b + noise).dense(), (a - b).dense())
    assert d.difference(torch.tensor(3.0), torch.tensor(1.0)) == 2


def test_uncorrelated_draws_against_the_triple_sum(sample):
    members, draws = sample
    draws = draws[:5].clone()
    draws[0, 3] = draws[2:, 4] = draws[:, 6] = torch.nan
    omega = d.omega_uncorrelated(members, draws)
    for i, j in itertools.product(range(9), repeat=2):
        a, b = draws[:, i][~draws[:, i].isnan()], draws[:, j][~draws[:, j].isnan()]
        if len(a) == 0 or len(b) == 0:
            assert omega[i, j].isnan()
            continue
        if i == j:
            brute = sum((f - y) ** 2 for f in members[:, i] for y in a) / (6 * len(a))
        else:
            terms = [
                (fi - y) * (fj - z) for fi, fj in zip(members[:, i], members[:, j], strict=True) for y in a for z in b
            ]
            brute = sum(terms) / (6 * len(a) * len(b))
        torch.testing.assert_close(omega[i, j], brute)


def test_draws_made_together_against_the_double_sum(sample):
    members, draws = sample
    draws = draws[:5].clone()
    draws[0, 3] = draws[2:, 4] = draws[:3, 7] = draws[3:, 8] = torch.nan
    omega = d.omega_together(members, draws)
    for i, j in itertools.product(range(9), repeat=2):
        both = ~(draws[:, i].isnan() | draws[:, j].isnan())
        if not both.any():
            assert omega[i, j].isnan()
            continue
        pairs = zip(draws[both, i], draws[both, j], strict=True)
        pairs = list(pairs)
        terms = [(fi - y) * (fj - z) for fi, fj in zip(members[:, i], members[:, j], strict=True) for y, z in pairs]
        torch.testing.assert_close(omega[i, j], sum(terms) / (6 * len(pairs)))


@pytest.mark.parametrize("kind", [torch.double, torch.float32])
def test_draws_made_together_keep_their_digits_beside_a_large_offset(sample, kind):
    """Predictions in single precision, as networks give them, and an offset that squares would not survive."""
    members, draws = sample[0].float(), sample[1].to(kind)
    exact = d.omega_together(members, draws)
    moved = d.omega_together(members + 1000, draws + 1000)
    torch.testing.assert_close(moved, exact, rtol=0, atol=1e-3)  # 1000 + x is itself rounded to 6e-5


def test_no_member_or_no_draw_is_refused():
    with pytest.raises(InputError, match="at least one member"):
        d.covariance(torch.zeros(0, 4))
    with pytest.raises(InputError, match="no draw is finite"):
        d.omega_together(torch.zeros(2, 3), torch.full((2, 3), torch.nan))
