import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aicau import Omega
from aicau.core.errors import InputError


def random_omega(seed, n, r, lead=(), extra=False):
    g = torch.Generator().manual_seed(seed)
    factor = torch.randn(*lead, n, r, generator=g, dtype=torch.double)
    signs = torch.where(torch.rand(r, generator=g) < 0.5, -1.0, 1.0).double()
    return Omega(factor, signs, torch.rand(*lead, n, generator=g, dtype=torch.double) if extra else None)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), r=st.integers(1, 15), q=st.integers(1, 6), extra=st.booleans())
@settings(max_examples=60, deadline=None)
def test_algebra_equals_the_dense_truth(seed, n, r, q, extra):
    a, b = random_omega(seed, n, r, (2,), extra), random_omega(seed + 1, n, q, (2,))
    A, B = a.dense(), b.dense()
    torch.testing.assert_close((a + b).dense(), A + B)
    torch.testing.assert_close((a - b).dense(), A - B)
    torch.testing.assert_close((-a).dense(), -A)
    torch.testing.assert_close(a.diagonal(), A.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(a.trace(), A.diagonal(dim1=-2, dim2=-1).sum(-1))
    v = torch.ones(2, n, 3, dtype=torch.double)
    torch.testing.assert_close(a.matmul(v), A @ v)
    allowed = torch.arange(n) % 2 == 0
    keep = (allowed[:, None] & allowed[None]).double()
    torch.testing.assert_close(a.restrict(allowed.expand(2, n)).dense(), A * keep)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 30), r=st.integers(1, 10), m=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_eigenpairs_of_an_indefinite_difference_equal_dense_eigh(seed, n, r, m):
    omega = random_omega(seed, n, r) - random_omega(seed + 1, n, r)
    values, vectors = omega.top_eigenpairs(m)
    dense = omega.dense()
    truth = torch.linalg.eigvalsh(dense).flip(-1)
    positive = int((truth > 1e-9).sum())
    k = min(m, positive, values.shape[-1])
    torch.testing.assert_close(values[:k], truth[:k], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dense @ vectors[:, :k], vectors[:, :k] * values[:k], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(torch.linalg.vector_norm(vectors[:, :k], dim=0), torch.ones(k, dtype=torch.double))


def test_eigenvectors_equal_dense_eigh_at_the_size_of_the_paper():
    omega = random_omega(0, 400, 6) - random_omega(1, 400, 6)
    values, vectors = omega.top_eigenpairs(5)
    w, v = torch.linalg.eigh(omega.dense())
    torch.testing.assert_close(values, w.flip(-1)[:5])
    overlap = (vectors * v.flip(-1)[:, :5]).sum(0).abs()
    torch.testing.assert_close(overlap, torch.ones(5, dtype=torch.double))


def test_eigenpairs_with_a_diagonal_equal_dense_eigh():
    omega = random_omega(3, 40, 4, (2,), extra=True)
    values, vectors = omega.top_eigenpairs(3)
    truth = torch.linalg.eigvalsh(omega.dense()).flip(-1)[:, :3]
    torch.testing.assert_close(values, truth)
    torch.testing.assert_close(omega.dense() @ vectors, vectors * values[:, None, :], rtol=1e-6, atol=1e-7)


def test_a_zero_matrix_has_zero_modes_and_no_nan():
    values, vectors = Omega(torch.zeros(5, 3)).top_eigenpairs(2)
    assert torch.equal(values, torch.zeros(2))
    assert torch.equal(vectors, torch.zeros(5, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_a_difference_of_equal_matrices_has_no_positive_mode(dtype):
    same = random_omega(4, 200, 6).factor.to(dtype)
    values, vectors = (Omega(same) - Omega(same)).top_eigenpairs(10)
    assert torch.equal(values, torch.zeros(10, dtype=dtype))
    assert not vectors.any()


def test_by_hand():
    omega = Omega(np.array([[1.0, 2.0], [3.0, 4.0]]), [1.0, -1.0])
    assert omega.dense().tolist() == [[1 - 4, 3 - 8], [3 - 8, 9 - 16]]


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(InputError, match="2 columns need as many signs; got 3"):
        Omega(torch.ones(4, 2), torch.ones(3))
    with pytest.raises(InputError, match="4 and 5 points"):
        Omega(torch.ones(4, 2)) + Omega(torch.ones(5, 2))
    with pytest.raises(InputError, match="at least one eigenpair"):
        Omega(torch.ones(4, 2)).top_eigenpairs(0)
    with pytest.raises(InputError, match="shape"):
        Omega(torch.ones(4))


def test_a_zero_matrix_with_a_diagonal_has_zero_modes_and_no_nan():
    values, vectors = Omega(torch.zeros(9, 2), None, torch.zeros(9)).top_eigenpairs(2)
    assert torch.equal(values, torch.zeros(2))
    assert torch.isfinite(vectors).all()


def test_modes_of_equal_points_are_the_same_every_time():
    omega = Omega(torch.ones(301, 4), None, torch.full((301,), 0.5))  # all eigenvalues but one are equal
    one, other = omega.top_eigenpairs(3)[1], omega.top_eigenpairs(3)[1]
    assert torch.equal(one, other)
