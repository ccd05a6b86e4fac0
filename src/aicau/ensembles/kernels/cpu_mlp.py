"""Members of F_k on the CPU: training, one network per thread."""

import numpy as np
from numba import njit, prange

from aicau.ensembles.kernels.cpu import FAST, adam, copy_weights, product, up4, up16, weight_gradient
from aicau.ensembles.kernels.settings import HEADS

SQUARED, POISSON = HEADS.index("squared"), HEADS.index("poisson")


@njit(fastmath=FAST, cache=True)
def _mlp_forward(p, a, sizes, points):  # type: ignore[no-untyped-def]
    """Outputs of one network stand in a[depth, 0]."""
    zero, one = np.float32(0), np.float32(1)
    depth = sizes.size - 1
    at = 0
    for i in range(depth):
        inner, outer = up4(sizes[i] + 1), up4(sizes[i + 1])
        w = p[at : at + outer * inner].reshape(outer, inner)
        product(w, a[i], a[i + 1], inner, outer, points, False)
        if i < depth - 1:
            for unit in range(sizes[i + 1]):
                row = a[i + 1, unit]
                for j in range(points):
                    row[j] = max(row[j], zero)
            row = a[i + 1, sizes[i + 1]]
            for j in range(points):
                row[j] = one
        at += outer * inner


@njit(cache=True)
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


@njit(fastmath=FAST, cache=True)
def _mlp_gradient(p, g, a, d, sizes, y, weight, points, head):  # type: ignore[no-untyped-def]
    """Weighted loss of one network and its gradient. `a[0]` holds the points; a row of ones carries biases."""
    zero = np.float32(0)
    depth = sizes.size - 1
    _mlp_forward(p, a, sizes, points)
    at = p.size
    loss = zero
    back = d[depth % 2]
    back[sizes[depth] : up4(sizes[depth])] = zero
    if head == SQUARED:
        for j in range(points):
            error = a[depth, 0, j] - y[0, j]
            loss += weight[j] * error * error
            back[0, j] = np.float32(2) * weight[j] * error
    else:
        loss = _likelihood(a[depth], y, weight, back, sizes[depth], points, head)
    for i in range(depth - 1, -1, -1):
        inner, outer = up4(sizes[i] + 1), up4(sizes[i + 1])
        at -= outer * inner
        weight_gradient(d[(i + 1) % 2], a[i], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
        if i > 0:
            w = p[at : at + outer * inner].reshape(outer, inner)
            product(w, d[(i + 1) % 2], d[i % 2], outer, up4(sizes[i]), points, True)
            for unit in range(sizes[i]):
                row, active = d[i % 2, unit], a[i, unit]
                for j in range(points):
                    row[j] = row[j] if active[j] > zero else zero
            for unit in range(sizes[i], up4(sizes[i])):
                d[i % 2, unit] = zero
    return loss


@njit(cache=True)
def _copy_mlp(flat, padded, sizes, into_padded):  # type: ignore[no-untyped-def]
    at, to = 0, 0
    for i in range(sizes.size - 1):
        outs, ins = sizes[i + 1], sizes[i] + 1
        copy_weights(flat[at:], padded[to:], outs, ins, up4(ins), into_padded)
        at += outs * ins
        to += up4(outs) * up4(ins)


@njit(cache=True)
def _mlp_sizes(sizes):  # type: ignore[no-untyped-def]
    """Rows of the widest layer and padded parameters of one network."""
    widest, size = 0, 0
    for i in range(sizes.size):
        widest = max(widest, up4(sizes[i] + 1))
    for i in range(sizes.size - 1):
        size += up4(sizes[i] + 1) * up4(sizes[i + 1])
    return widest, size


@njit(parallel=True, cache=True)
def train_mlp(  # type: ignore[no-untyped-def]
    x, y, weights, parameters, sizes, head, learning_rate, beta1, beta2, decay, min_delta, patience, max_epochs
):
    """Train every network in place. x (N, l, d), y (N, l, c), weights (N, K, l) with 0 = not seen.

    parameters (N, K, P). Returns epochs (N, K) and the last loss (N, K).
    """
    runs, members, rows = weights.shape
    depth = sizes.size - 1
    widest, size = _mlp_sizes(sizes)
    epochs = np.zeros((runs, members), np.int64)
    losses = np.zeros((runs, members), np.float32)
    for net in prange(runs * members):
        run, member = net // members, net % members
        seen = 0
        total = 0.0
        for j in range(rows):
            if weights[run, member, j] > 0:
                seen += 1
                total += weights[run, member, j]
        points = up16(seen)
        a = np.zeros((depth + 1, widest, points), np.float32)
        d = np.zeros((2, widest, points), np.float32)
        target = np.zeros((sizes[depth], points), np.float32)
        weight = np.zeros(points, np.float32)
        at = 0
        for j in range(rows):
            if weights[run, member, j] > 0:
                for k in range(sizes[0]):
                    a[0, k, at] = x[run, j, k]
                for c in range(sizes[depth]):
                    target[c, at] = y[run, j, c]
                weight[at] = weights[run, member, j] / total
                at += 1
        a[0, sizes[0]] = 1
        p = np.zeros(size, np.float32)
        g, m, v = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        _copy_mlp(parameters[run, member], p, sizes, True)
        best, waited, epoch, loss = np.inf, 0, 0, np.float32(0)
        while epoch < max_epochs and waited <= patience:
            loss = _mlp_gradient(p, g, a, d, sizes, target, weight, points, head)
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
        _copy_mlp(parameters[run, member], p, sizes, False)
    return epochs, losses
