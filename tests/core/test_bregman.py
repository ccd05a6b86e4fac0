"""Bregman divergences: values by hand, the identity to 1e-10, dual means against a minimiser, zeros, bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from aicau.core import bregman, decomposition
from aicau.core.errors import AicauError, InputError, TrainingError

MATRIX = [[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 1.5]]


def quartic():
    """φ = Σ v⁴/4 + e^v: no closed inverse."""
    return bregman.custom(lambda v: (v**4 / 4 + v.exp()).sum(-1), lambda v: v**3 + v.exp(), "quartic")


def logit():
    """φ = Σ v log v + (1 − v) log(1 − v) on (0, 1): the solver must find the logistic function."""
    return bregman.custom(
        lambda v: (v * v.log() + (1 - v) * torch.log1p(-v)).sum(-1), lambda v: v.log() - torch.log1p(-v), "logit"
    )


KINDS = {
    "squared": "real",
    "kl": "simplex",
    "poisson": "positive",
    "itakura-saito": "positive",
    bregman.make("mahalanobis", matrix=MATRIX): "real",
    quartic(): "real",
    logit(): "unit",
}
CASES = pytest.mark.parametrize(("which", "kind"), KINDS.items(), ids=lambda v: getattr(v, "name", v))


def draw(kind, *shape, seed):
    g = torch.Generator().manual_seed(seed)
    raw = torch.randn(*shape, generator=g, dtype=torch.double)
    if kind == "simplex":
        return torch.softmax(3 * raw, -1)
    if kind == "positive":
        return raw.exp()
    return torch.sigmoid(2 * raw) if kind == "unit" else raw


@CASES
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), members=st.integers(1, 7), labels=st.integers(1, 6), lead=st.integers(1, 4))
@example(seed=62008, members=7, labels=1, lead=2)  # the solver once stopped where φ differs by less than its rounding
def test_the_decomposition_is_exact(which, kind, seed, members, labels, lead):
    y, f = draw(kind, lead, labels, 3, seed=seed), draw(kind, lead, members, 3, seed=seed + 1)
    parts = bregman.decompose(which, y, f)
    assert parts.total.shape == (lead,)
    whole = parts.aleatoric + parts.bias + parts.epistemic
    torch.testing.assert_close(whole, parts.total, rtol=1e-10, atol=1e-10)
    for part in (parts.aleatoric, parts.bias, parts.epistemic):
        assert float(part.min()) > -1e-12


@CASES
def test_total_is_the_mean_over_all_pairs(which, kind):
    y, f = draw(kind, 4, 3, seed=1), draw(kind, 5, 3, seed=2)
    pairs = [float(bregman.divergence(which, a, b)) for a in y for b in f]
    assert float(bregman.decompose(which, y, f).total) == pytest.approx(np.mean(pairs), rel=1e-12)


@CASES
def test_the_definition_and_the_closed_form_agree(which, kind):
    d = bregman.make(which)
    u, v = draw(kind, 20, 3, seed=3), draw(kind, 20, 3, seed=4)
    want = d.function(u) - d.function(v) - (d.gradient(v) * (u - v)).sum(-1)
    torch.testing.assert_close(bregman.divergence(which, u, v), want, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(bregman.divergence(which, u, u), torch.zeros(20).double(), rtol=0, atol=1e-12)


@CASES
def test_the_dual_mean_minimises_the_mean_divergence_to_the_members(which, kind):
    d, f = bregman.make(which), draw(kind, 5, 3, seed=5)
    outside = {"simplex": lambda z: torch.softmax(z, -1), "positive": torch.exp, "unit": torch.sigmoid}
    inside = outside.get(kind, lambda z: z)

    def loss(z):
        at = torch.tensor(z, dtype=torch.double, requires_grad=True)
        value = bregman.between(d, inside(at), f).mean()
        value.backward()
        return float(value.detach()), at.grad.numpy()

    found = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9})
    got = bregman.dual_mean(which, f)
    torch.testing.assert_close(inside(torch.from_numpy(found.x)), got, rtol=1e-5, atol=1e-6)
    assert float(bregman.between(d, got, f).mean()) <= found.fun + 1e-12


def test_values_by_hand():
    assert float(bregman.divergence("squared", [1.0, 2.0], [0.0, 0.0])) == 5
    assert float(bregman.divergence("kl", [0.5, 0.5], [0.25, 0.75])) == pytest.approx(0.5 * math.log(4 / 3))
    assert float(bregman.divergence("poisson", [2.0], [1.0])) == pytest.approx(2 * math.log(2) - 1)
    assert float(bregman.divergence("itakura-saito", [2.0], [1.0])) == pytest.approx(1 - math.log(2))
    two = bregman.make("mahalanobis", matrix=[[2.0, 0.0], [0.0, 3.0]])
    assert float(bregman.divergence(two, [1.0, 1.0], [0.0, 0.0])) == 5
    assert bregman.make("mahalanobis") is bregman.SQUARED
    # Two members, (0.9, 0.1) and (0.5, 0.5): the geometric mean, normalised, is 3 to 1 … √(0.45) to √(0.05).
    got = bregman.dual_mean("kl", [[0.9, 0.1], [0.5, 0.5]])
    np.testing.assert_allclose(got, [0.75, 0.25], rtol=1e-12)
    np.testing.assert_allclose(bregman.dual_mean("poisson", [[4.0], [9.0]]), [6.0])
    np.testing.assert_allclose(bregman.dual_mean("itakura-saito", [[1.0], [3.0]]), [1.5])


def test_the_solver_finds_what_a_closed_form_says():
    f = draw("unit", 50, 6, 2, seed=7)
    torch.testing.assert_close(
        bregman.dual_mean(logit(), f), torch.sigmoid(torch.logit(f).mean(-2)), rtol=1e-12, atol=1e-12
    )


def test_the_squared_case_is_the_existing_code():
    g = torch.Generator().manual_seed(0)
    f, y = (torch.randn(3, k, 11, generator=g, dtype=torch.double) for k in (5, 4))
    parts = bregman.decompose("squared", y.mT[..., None], f.mT[..., None])
    bias = decomposition.mean(f) - y.mean(-2)
    aleatoric = y.var(-2, correction=0)
    same = {"rtol": 1e-12, "atol": 1e-13}
    torch.testing.assert_close(parts.epistemic, decomposition.epistemic(f), **same)
    torch.testing.assert_close(parts.bias, decomposition.cobias(bias).diagonal(), **same)
    torch.testing.assert_close(parts.aleatoric, aleatoric, **same)
    torch.testing.assert_close(parts.total, decomposition.pemse(f, bias, aleatoric), **same)
    torch.testing.assert_close(bregman.dual_mean("squared", f.mT[..., None])[..., 0], decomposition.mean(f), **same)


ZEROS = {
    "a class one member excludes and a label has": ([[1.0, 0.0, 0.0]], [[0.0, 0.5, 0.5], [0.4, 0.3, 0.3]], True),
    "a class one member excludes and no label has": ([[0.0, 1.0, 0.0]], [[0.0, 0.5, 0.5], [0.4, 0.3, 0.3]], False),
    "members that exclude everything": ([[0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], True),
    "certain and right": ([[0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]], False),
}


@pytest.mark.parametrize(("labels", "members", "endless"), ZEROS.values(), ids=ZEROS)
@pytest.mark.parametrize("name", ["kl", "poisson"])
def test_zero_probabilities_give_infinity_never_nan(name, labels, members, endless):
    parts = bregman.decompose(name, labels, members)
    for part in vars(parts).values():
        assert not torch.isnan(part).any()
    assert bool(torch.isinf(parts.total)) == endless
    whole = parts.aleatoric + parts.bias + parts.epistemic
    assert bool(torch.isinf(whole)) == endless
    if not endless:
        torch.testing.assert_close(whole, parts.total, rtol=1e-10, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["kl", "poisson", "itakura-saito", "squared"]),
    y=st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0]), min_size=2, max_size=2), min_size=1, max_size=3),
    f=st.lists(st.lists(st.sampled_from([0.0, 0.5, 3.0]), min_size=2, max_size=2), min_size=1, max_size=3),
)
def test_any_pattern_of_zeros_keeps_the_identity_in_the_extended_reals(name, y, f):
    y, f = torch.tensor(y).double(), torch.tensor(f).double()
    if name == "kl":
        y, f = y + (y.sum(-1, keepdim=True) == 0), f + (f.sum(-1, keepdim=True) == 0)
        y, f = y / y.sum(-1, keepdim=True), f / f.sum(-1, keepdim=True)
    parts = bregman.decompose(name, y, f)
    whole = parts.aleatoric + parts.bias + parts.epistemic
    torch.testing.assert_close(whole, parts.total, rtol=1e-10, atol=1e-12)
    assert not torch.isnan(whole)


BAD = {
    "nan": ("kl", [[math.nan, 1.0]], [[0.5, 0.5]], "finite"),
    "negative": ("poisson", [[-1.0]], [[1.0]], "below 0"),
    "off the simplex": ("kl", [[0.5, 0.5]], [[0.5, 0.6]], "add up to 1"),
    "entries": ("squared", [[0.5, 0.5]], [[0.5]], "must agree"),
    "leading": ("squared", np.ones((2, 1, 1)), np.ones((3, 1, 1)), "leading dimensions"),
    "members": ("squared", np.ones((1, 1)), np.ones((0, 1)), "K at least 1"),
    "flat": ("squared", [1.0], [[1.0]], "shape"),
    "name": ("chi", [[1.0]], [[1.0]], "known: .*itakura-saito"),
    "width": (bregman.make("mahalanobis", matrix=MATRIX), [[1.0]], [[1.0]], "3 entries"),
    "text": ("squared", [["a"]], [[1.0]], "numbers"),
}


@pytest.mark.parametrize(("name", "labels", "members", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(name, labels, members, message):
    with pytest.raises(InputError, match=message):
        bregman.decompose(name, labels, members)


def test_bad_matrices_and_functions_are_refused():
    with pytest.raises(InputError, match="symmetric"):
        bregman.make("mahalanobis", matrix=[[1.0, 2.0]])
    with pytest.raises(InputError, match="positive definite"):
        bregman.make("mahalanobis", matrix=[[1.0, 0.0], [0.0, -1.0]])
    with pytest.raises(InputError, match="entries cannot be compared"):
        bregman.divergence("squared", [1.0, 2.0], [1.0])
    hill = bregman.custom(lambda v: -(v**2).sum(-1), lambda v: 3 - 2 * v**2, "hill")
    with pytest.raises(TrainingError, match="strictly convex"):
        bregman.dual_mean(hill, [[0.0], [5.0]])
    assert issubclass(TrainingError, AicauError)
