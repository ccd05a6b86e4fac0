"""Trees on the CPU: a block of points goes down a tree level by level; callers run side by side."""

import numpy as np

from aicau.ensembles.kernels.cpu import njit

POINTS = 256  # of a block: their rows stay in the cache while a tree is walked


@njit(nogil=True)
def trees_mean(x, roots, feature, threshold, left, right, value):  # type: ignore[no-untyped-def]
    """Mean over trees of the value of the leaf that each point falls into. x (n, d) float32; gives (n,) float64.

    Nodes are packed: a leaf leads to itself, and thresholds are the largest numbers in single precision that are not
    above them, which no comparison with such numbers can tell apart.
    """
    (n, d), nodes = x.shape, feature.size
    asked, most, below = np.zeros(nodes, np.int32), threshold.astype(np.float32), np.empty(2 * nodes, np.int32)
    for node in range(nodes):
        if most[node] > threshold[node]:
            most[node] = np.nextafter(most[node], np.float32(-np.inf))
        inner = left[node] >= 0
        asked[node] = feature[node] if inner else 0
        below[2 * node] = left[node] if inner else node
        below[2 * node + 1] = right[node] if inner else node
    flat, at, out = x.ravel(), np.empty(POINTS, np.int32), np.zeros(n)
    for start in range(0, n, POINTS):
        size = min(POINTS, n - start)
        for root in roots:
            at[:size] = root
            moved = True
            while moved:
                steps = 0
                for j in range(size):
                    node = at[j]
                    after = below[2 * node + (flat[(start + j) * d + asked[node]] > most[node])]
                    steps += after != node
                    at[j] = after
                moved = steps > 0
            for j in range(size):
                out[start + j] += value[at[j]]
    return out / roots.size
