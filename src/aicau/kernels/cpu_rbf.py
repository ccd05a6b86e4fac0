"""Sums of Gaussian bumps on the CPU: the mean of a Gaussian process over a pool of millions, without its n × l matrix.

A block of points stays in the cache while all measured points pass by. The exponential is written out (Cody & Waite's
reduction, a polynomial of degree 11, the power of two put into the exponent's bits) so that the compiler can run it on
whole vectors; it is right to two units in the last place.
"""

import numpy as np
from numba import njit, prange

from aicau.kernels.cpu import FAST

POINTS = 64  # of a block
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LEAST = -700.0  # e^−700 ≈ 10⁻³⁰⁴ stands for everything smaller


@njit(fastmath=FAST, cache=True)
def _add_bumps(block, x, weights, total, square, power, bits):  # type: ignore[no-untyped-def]
    """total_j += Σ_i w_i exp(−½|block_j − x_i|²); block is (p, POINTS)."""
    scale = bits.view(np.float64)
    for i in range(x.shape[0]):
        for j in range(POINTS):
            square[j] = 0.0
        for k in range(x.shape[1]):
            centre, row = x[i, k], block[k]
            for j in range(POINTS):
                gap = row[j] - centre
                square[j] += gap * gap
        for j in range(POINTS):
            v = max(-0.5 * square[j], _LEAST)
            whole = np.floor(v * _LOG2E + 0.5)
            bits[j] = (np.int64(whole) + 1023) << 52
            power[j] = (v - whole * _LN2_HIGH) - whole * _LN2_LOW
        weight = weights[i]
        for j in range(POINTS):
            r = power[j]
            e = 1.0 / 39916800.0
            e = e * r + 1.0 / 3628800.0
            e = e * r + 1.0 / 362880.0
            e = e * r + 1.0 / 40320.0
            e = e * r + 1.0 / 5040.0
            e = e * r + 1.0 / 720.0
            e = e * r + 1.0 / 120.0
            e = e * r + 1.0 / 24.0
            e = e * r + 1.0 / 6.0
            e = e * r + 0.5
            e = e * r + 1.0
            e = e * r + 1.0
            total[j] += weight * e * scale[j]


@njit(parallel=True, cache=True)
def rbf_sum(at, x, weights):  # type: ignore[no-untyped-def]
    """Σ_i w_i exp(−½|at_j − x_i|²). at (n, p), x (l, p), weights (l,), float64; gives (n,)."""
    n, p = at.shape
    out = np.zeros(n)
    for number in prange((n + POINTS - 1) // POINTS):
        start = number * POINTS
        size = min(POINTS, n - start)
        block = np.zeros((p, POINTS))
        for j in range(size):
            for k in range(p):
                block[k, j] = at[start + j, k]
        total, square, power = np.zeros(POINTS), np.zeros(POINTS), np.zeros(POINTS)
        _add_bumps(block, x, weights, total, square, power, np.zeros(POINTS, np.int64))
        for j in range(size):
            out[start + j] = total[j]
    return out
