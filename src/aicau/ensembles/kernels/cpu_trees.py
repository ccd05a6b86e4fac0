"""Trees on the CPU: every point walks down every tree, one block of points after another; callers run side by side."""

import numpy as np
from numba import njit

POINTS = 256  # of a block: their rows stay in the cache while a tree is walked


@njit(nogil=True, cache=True)
def trees_mean(x, roots, feature, threshold, left, right, value):  # type: ignore[no-untyped-def]
    """Mean over trees of the value of the leaf that each point falls into. x (n, d) float32; gives (n,) float64."""
    n, trees = x.shape[0], roots.shape[0]
    out = np.zeros(n)
    for number in range((n + POINTS - 1) // POINTS):
        for root in roots:
            for point in range(number * POINTS, min(n, (number + 1) * POINTS)):
                node = root
                while left[node] >= 0:
                    node = left[node] if x[point, feature[node]] <= threshold[node] else right[node]
                out[point] += value[node]
        for point in range(number * POINTS, min(n, (number + 1) * POINTS)):
            out[point] /= trees
    return out
