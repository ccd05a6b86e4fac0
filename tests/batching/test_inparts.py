"""Modes of a matrix that is read in parts, against its dense eigenvectors."""

import pytest
import torch

from aicau import Omega
from aicau.batching.portions import InParts

N, R, M, FEW = 400, 4, 12, 30


def made(kind, signs=None):
    draw = torch.Generator().manual_seed(7)
    x = torch.linspace(0, 6, N).double()
    factor = torch.stack([torch.sin((j + 1) * x) * torch.exp(-j * x / 9) for j in range(R)], -1)
    extra = {
        "none": None,
        "even": torch.full((N,), 0.5).double(),
        "smooth": 0.5 + 0.3 * torch.sin(x / 2),
        "spiky": torch.where(torch.arange(N) % 37 == 5, 3000.0, 0.2).double() * torch.rand(N, generator=draw).double(),
    }[kind]
    return Omega(factor[None], signs, None if extra is None else extra[None])


def parted(omega, step, few):
    def read(start):
        part = slice(start, start + step)
        extra = None if omega.extra is None else omega.extra[:, part]
        return Omega(omega.factor[:, part], omega.weights, extra)

    return InParts(omega.factor[:, :0], omega.weights, None, omega.n, step, read, few)


@pytest.mark.parametrize("signs", [None, torch.tensor([1.0, -1.0, 1.0, -1.0]).double()])
@pytest.mark.parametrize("kind", ["none", "even", "smooth", "spiky"])
def test_modes_are_those_of_the_matrix(kind, signs):
    omega = made(kind, signs)
    allowed = (torch.arange(N) % 11 > 0)[None]
    few = None if kind == "none" else torch.where(allowed[0], omega.extra[0], 0).topk(FEW).indices.sort().values
    right, vectors = torch.linalg.eigh(omega.restrict(allowed).dense()[0])
    count = {"none": 4 if signs is None else 2, "even": 2, "smooth": 2, "spiky": M}[
        kind
    ]  # further ones are not told apart
    for step in (N, 64):
        inside = parted(omega, step, few)
        values, weights, trace = inside.modes(M, allowed)
        found = torch.cat([inside.part(start) for start in range(0, N, step)], 1)[0] @ weights[0] * allowed[0][:, None]
        torch.testing.assert_close(trace[0], (omega.diagonal() * allowed).sum())
        torch.testing.assert_close(values[0, :count], right.flip(0)[:count], rtol=1e-3, atol=1e-9)
        assert (values[0] <= right.flip(0)[: values.shape[1]] + 1e-9 * right.abs().max()).all()  # Ritz: never above
        same = (found[:, :count] * vectors.flip(-1)[:, :count]).sum(0).abs()
        assert same.min() > 0.999
        torch.testing.assert_close(found.square().sum(0)[:count], torch.ones(count).double())


def test_it_is_one_run():
    inside = parted(made("even"), 64, torch.arange(3))
    assert (inside[0:1] is inside, inside.n, inside.step) == (True, N, 64)
