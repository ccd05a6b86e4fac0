"""Compiled kernels without a place to keep them."""

from numba.core import caching

from aicau.ensembles.kernels import cpu


def test_who_can_write_nowhere_computes_all_the_same(monkeypatch):
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    double = cpu.njit()(lambda value: 2 * value)
    assert double(3) == 6
    assert double.signatures
