"""What the CPU kernels share: one network stays in one core's cache for all its epochs.

A batched tensor program spends most of a tiny network's time in memory traffic and in starting operations. Here each
network is a loop of its own (compiled by Numba, one thread per network): an epoch of a paper network on 80 points is
three small matrix products per layer on data that never leaves the cache, early stopping costs nothing, and the result
of a network depends on nothing but its own data, neither on its neighbours nor on the number of threads.

Matrices are feature-major, (features, points); products are BLAS on one thread.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

# Sums may be reordered and fused; NaN and infinity keep their meaning, so divergence is seen.
FAST = {"reassoc", "contract", "nsz", "arcp"}


def njit(**options: Any) -> Callable[[Any], Any]:
    """Compiled by Numba and kept for the next process, unless neither this folder nor a home can be written to."""

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache
            return numba.njit(**options)(function)

    return compiled


@njit(fastmath=FAST)
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
