"""Networks and trees on the CPU: a network stays in one core's cache for all its epochs.

Each network is a loop of its own on one thread, compiled by Numba: early stopping costs nothing, and the result depends
neither on neighbours nor on the number of threads. Matrices are feature-major, (features, points).
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange

from aicau.ensembles.kernels.settings import HEADS

# Sums may be reordered and fused; NaN and infinity keep their meaning, so divergence is seen.
FAST = {"reassoc", "contract", "nsz", "arcp"}
SQUARED, POISSON = HEADS.index("squared"), HEADS.index("poisson")
POINTS = 256  # of a block: their rows stay in the cache while a tree is walked


def njit(**options: Any) -> Callable[[Any], Any]:
    """Compiled by Numba and kept for the next process, where a folder for that can be written to.

    Functions that others call are inlined: else reordered sums differ between the process that compiles and the next.
    """

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache
            return numba.njit(**options)(function)

    return compiled


@njit(fastmath=FAST, forceinline=True)
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


@njit(forceinline=True)
def _likelihood(out, y, weight, back, classes, points, head):  # type: ignore[no-untyped-def]
    """Cross-entropy or Poisson loss; `back` becomes its gradient, (prediction − target)·weight."""
    loss = np.float32(0)
    for j in range(points):
        most = out[0, j]
        for c in range(1, classes):
            most = max(most, out[c, j])
        total = np.float32(0)
        for c in range(classes):
            total += np.exp(out[c, j] - most)
        level = most + np.log(total)  # logarithm of the normaliser of a softmax
        loss += weight[j] * (np.exp(out[0, j]) if head == POISSON else level)
        for c in range(classes):
            predicted = np.exp(out[c, j] if head == POISSON else out[c, j] - level)
            loss -= weight[j] * y[c, j] * out[c, j]
            back[c, j] = weight[j] * (predicted - y[c, j])
    return loss


@njit(fastmath=FAST, forceinline=True)
def mlp_gradient(p, g, a, d, sizes, y, weight, head):  # type: ignore[no-untyped-def]
    """Weighted loss of one network; `g` becomes its gradient. p (P,), y (c, points), weight (points,), d (2, widest,
    points), a (layers, widest, points) with the points in a[0]; the row after a layer's units is one, for biases."""
    zero = np.float32(0)
    depth = sizes.size - 1
    at = 0
    for i in range(depth):
        ins, outs = sizes[i] + 1, sizes[i + 1]
        a[i, sizes[i]] = np.float32(1)
        np.dot(p[at : at + outs * ins].reshape(outs, ins), a[i, :ins], a[i + 1, :outs])
        if i < depth - 1:
            for unit in range(outs):
                row = a[i + 1, unit]
                for j in range(row.size):
                    row[j] = max(row[j], zero)
        at += outs * ins
    loss = zero
    back = d[depth % 2]
    if head == SQUARED:
        for j in range(weight.size):
            error = a[depth, 0, j] - y[0, j]
            loss += weight[j] * error * error
            back[0, j] = np.float32(2) * weight[j] * error
    else:
        loss = _likelihood(a[depth], y, weight, back, sizes[depth], weight.size, head)
    for i in range(depth - 1, -1, -1):
        ins, outs = sizes[i] + 1, sizes[i + 1]
        at -= outs * ins
        np.dot(d[(i + 1) % 2, :outs], a[i, :ins].T, g[at : at + outs * ins].reshape(outs, ins))
        if i > 0:
            np.dot(p[at : at + outs * ins].reshape(outs, ins).T, d[(i + 1) % 2, :outs], d[i % 2, :ins])
            for unit in range(sizes[i]):
                row, active = d[i % 2, unit], a[i, unit]
                for j in range(row.size):
                    row[j] = row[j] if active[j] > zero else zero
    return loss


@njit(parallel=True)
def train_mlp(  # type: ignore[no-untyped-def]
    x, y, weights, parameters, sizes, head, learning_rate, beta1, beta2, decay, min_delta, patience, max_epochs
):
    """Train every network in place. x (N, l, d), y (N, l, c), weights (N, K, l), parameters (N, K, P) -> epochs (N, K),
    the last loss (N, K)."""
    runs, members, _ = weights.shape
    depth, widest = sizes.size - 1, sizes.max() + 1
    epochs = np.zeros((runs, members), np.int64)
    losses = np.zeros((runs, members), np.float32)
    for net in prange(runs * members):
        run, member = net // members, net % members
        seen = np.flatnonzero(weights[run, member] > 0)
        a = np.zeros((depth + 1, widest, seen.size), np.float32)
        d = np.zeros((2, widest, seen.size), np.float32)
        a[0, : sizes[0]] = x[run][seen].T
        target = np.ascontiguousarray(y[run][seen].T)
        weight = weights[run, member][seen]
        weight /= weight.sum()
        p = parameters[run, member]
        g, m, v = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        best, waited, epoch, loss = np.inf, 0, 0, np.float32(0)
        while epoch < max_epochs and waited <= patience:
            loss = mlp_gradient(p, g, a, d, sizes, target, weight, head)
            epoch += 1
            if not np.isfinite(loss):
                break
            adam(p, g, m, v, epoch, learning_rate, beta1, beta2, decay)
            if loss < best - min_delta:
                best = loss
                waited = 0
            else:
                waited += 1
        epochs[run, member] = epoch
        losses[run, member] = loss
    return epochs, losses


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
