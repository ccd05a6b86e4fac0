"""What the CPU kernels share: one network stays in one core's cache for all its epochs.

A batched tensor program spends most of a tiny network's time in memory traffic and in starting operations. Here each
network is a loop of its own (compiled by Numba, one thread per network): an epoch of a paper network on 80 points is
three small matrix products per layer on data that never leaves the cache, early stopping costs nothing, and the result
of a network depends on nothing but its own data, neither on its neighbours nor on the number of threads.

Matrices are feature-major, (features, points), rows padded to multiples of 4 and points to multiples of 16: the inner
loops then run over contiguous points, 4 × 4 products at a time, without a remainder.
"""

import math

import numpy as np
from numba import njit

# Sums may be reordered and fused; NaN and infinity keep their meaning, so divergence is seen.
FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(cache=True)
def up4(n):  # type: ignore[no-untyped-def]
    return (n + 3) // 4 * 4


@njit(cache=True)
def up16(n):  # type: ignore[no-untyped-def]
    return (n + 15) // 16 * 16


@njit(fastmath=FAST, cache=True)
def product(w, a, c, inner, outer, points, transposed):  # type: ignore[no-untyped-def]
    """C = W A, or Wᵀ A: (outer, inner)·(inner, points), both sizes multiples of 4."""
    zero = np.float32(0)
    for i in range(0, outer, 4):
        c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
        for j in range(points):
            c0[j] = zero
            c1[j] = zero
            c2[j] = zero
            c3[j] = zero
        for k in range(0, inner, 4):
            if transposed:
                w00, w01, w02, w03 = w[k, i], w[k + 1, i], w[k + 2, i], w[k + 3, i]
                w10, w11, w12, w13 = w[k, i + 1], w[k + 1, i + 1], w[k + 2, i + 1], w[k + 3, i + 1]
                w20, w21, w22, w23 = w[k, i + 2], w[k + 1, i + 2], w[k + 2, i + 2], w[k + 3, i + 2]
                w30, w31, w32, w33 = w[k, i + 3], w[k + 1, i + 3], w[k + 2, i + 3], w[k + 3, i + 3]
            else:
                w00, w01, w02, w03 = w[i, k], w[i, k + 1], w[i, k + 2], w[i, k + 3]
                w10, w11, w12, w13 = w[i + 1, k], w[i + 1, k + 1], w[i + 1, k + 2], w[i + 1, k + 3]
                w20, w21, w22, w23 = w[i + 2, k], w[i + 2, k + 1], w[i + 2, k + 2], w[i + 2, k + 3]
                w30, w31, w32, w33 = w[i + 3, k], w[i + 3, k + 1], w[i + 3, k + 2], w[i + 3, k + 3]
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            for j in range(points):
                x0, x1, x2, x3 = a0[j], a1[j], a2[j], a3[j]
                c0[j] += w00 * x0 + w01 * x1 + w02 * x2 + w03 * x3
                c1[j] += w10 * x0 + w11 * x1 + w12 * x2 + w13 * x3
                c2[j] += w20 * x0 + w21 * x1 + w22 * x2 + w23 * x3
                c3[j] += w30 * x0 + w31 * x1 + w32 * x2 + w33 * x3


@njit(fastmath=FAST, cache=True)
def weight_gradient(d, a, g, inner, outer, points):  # type: ignore[no-untyped-def]
    """G = D Aᵀ, the gradient of a weight matrix: (outer, points)·(points, inner)."""
    z = np.float32(0)
    for i in range(0, outer, 4):
        d0, d1, d2, d3 = d[i], d[i + 1], d[i + 2], d[i + 3]
        for k in range(0, inner, 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            s00, s01, s02, s03 = z, z, z, z
            s10, s11, s12, s13 = z, z, z, z
            s20, s21, s22, s23 = z, z, z, z
            s30, s31, s32, s33 = z, z, z, z
            for j in range(points):
                x0, x1, x2, x3 = a0[j], a1[j], a2[j], a3[j]
                y0, y1, y2, y3 = d0[j], d1[j], d2[j], d3[j]
                s00 += y0 * x0
                s01 += y0 * x1
                s02 += y0 * x2
                s03 += y0 * x3
                s10 += y1 * x0
                s11 += y1 * x1
                s12 += y1 * x2
                s13 += y1 * x3
                s20 += y2 * x0
                s21 += y2 * x1
                s22 += y2 * x2
                s23 += y2 * x3
                s30 += y3 * x0
                s31 += y3 * x1
                s32 += y3 * x2
                s33 += y3 * x3
            g[i, k], g[i, k + 1], g[i, k + 2], g[i, k + 3] = s00, s01, s02, s03
            g[i + 1, k], g[i + 1, k + 1], g[i + 1, k + 2], g[i + 1, k + 3] = s10, s11, s12, s13
            g[i + 2, k], g[i + 2, k + 1], g[i + 2, k + 2], g[i + 2, k + 3] = s20, s21, s22, s23
            g[i + 3, k], g[i + 3, k + 1], g[i + 3, k + 2], g[i + 3, k + 3] = s30, s31, s32, s33


@njit(fastmath=FAST, cache=True)
def adam(p, g, m, v, step, learning_rate, beta1, beta2, decay):  # type: ignore[no-untyped-def]
    """One step of Adam with an L2 term, as torch.optim.Adam does it."""
    one = np.float32(1)
    b1, b2, l2 = np.float32(beta1), np.float32(beta2), np.float32(decay)
    rate = np.float32(learning_rate / (1 - beta1**step))
    root = np.float32(1 / math.sqrt(1 - beta2**step))
    epsilon = np.float32(1e-8)
    for i in range(p.size):
        gradient = g[i] + l2 * p[i]
        first = b1 * m[i] + (one - b1) * gradient
        second = b2 * v[i] + (one - b2) * gradient * gradient
        m[i] = first
        v[i] = second
        p[i] -= rate * first / (np.sqrt(second) * root + epsilon)


@njit(cache=True)
def copy_weights(flat, padded, outs, ins, columns, into_padded):  # type: ignore[no-untyped-def]
    """Between a plain matrix (outs, ins) and its padded copy with `columns` columns."""
    for i in range(outs):
        for k in range(ins):
            if into_padded:
                padded[i * columns + k] = flat[i * ins + k]
            else:
                flat[i * ins + k] = padded[i * columns + k]
