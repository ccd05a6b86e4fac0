"""The CPU kernels: one network stays in one core's cache for all its epochs.

A batched tensor program spends most of a tiny network's time in memory traffic and in starting operations. Here each
network is a loop of its own (compiled by Numba, one thread per network): an epoch of a paper network on 80 points is
three small matrix products per layer on data that never leaves the cache, early stopping costs nothing, and the result
of a network depends on nothing but its own data, neither on its neighbours nor on the number of threads.

Matrices are feature-major, (features, points), rows padded to multiples of 4 and points to multiples of 16: the inner
loops then run over contiguous points, 4 × 4 products at a time, without a remainder.
"""

import itertools
import math

import numba
import numpy as np
from numba import njit, prange

# Sums may be reordered and fused; NaN and infinity keep their meaning, so divergence is seen.
FAST = {"reassoc", "contract", "nsz", "arcp"}
BLOCK = 128  # points predicted at a time: all layers of a block stay in the cache


@njit(cache=True)
def _up4(n):  # type: ignore[no-untyped-def]
    return (n + 3) // 4 * 4


@njit(cache=True)
def _up16(n):  # type: ignore[no-untyped-def]
    return (n + 15) // 16 * 16


@njit(fastmath=FAST, cache=True)
def _product(w, a, c, inner, outer, points, transposed):  # type: ignore[no-untyped-def]
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
def _outer(d, a, g, inner, outer, points):  # type: ignore[no-untyped-def]
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
def _adam(p, g, m, v, step, learning_rate, beta1, beta2, decay):  # type: ignore[no-untyped-def]
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


@njit(fastmath=FAST, cache=True)
def _mlp_forward(p, a, sizes, points):  # type: ignore[no-untyped-def]
    """Outputs of one network stand in a[depth, 0]."""
    zero, one = np.float32(0), np.float32(1)
    depth = sizes.size - 1
    at = 0
    for i in range(depth):
        inner, outer = _up4(sizes[i] + 1), _up4(sizes[i + 1])
        w = p[at : at + outer * inner].reshape(outer, inner)
        _product(w, a[i], a[i + 1], inner, outer, points, False)
        if i < depth - 1:
            for unit in range(sizes[i + 1]):
                row = a[i + 1, unit]
                for j in range(points):
                    row[j] = max(row[j], zero)
            row = a[i + 1, sizes[i + 1]]
            for j in range(points):
                row[j] = one
        at += outer * inner


@njit(fastmath=FAST, cache=True)
def _mlp_gradient(p, g, a, d, sizes, y, weight, points):  # type: ignore[no-untyped-def]
    """Weighted squared error of one network and its gradient. `a[0]` holds the points; a row of ones carries biases."""
    zero = np.float32(0)
    depth = sizes.size - 1
    _mlp_forward(p, a, sizes, points)
    at = p.size
    loss = zero
    back = d[depth % 2]
    back[1:4] = zero
    for j in range(points):
        error = a[depth, 0, j] - y[j]
        loss += weight[j] * error * error
        back[0, j] = np.float32(2) * weight[j] * error
    for i in range(depth - 1, -1, -1):
        inner, outer = _up4(sizes[i] + 1), _up4(sizes[i + 1])
        at -= outer * inner
        _outer(d[(i + 1) % 2], a[i], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
        if i > 0:
            w = p[at : at + outer * inner].reshape(outer, inner)
            _product(w, d[(i + 1) % 2], d[i % 2], outer, _up4(sizes[i]), points, True)
            for unit in range(sizes[i]):
                row, active = d[i % 2, unit], a[i, unit]
                for j in range(points):
                    row[j] = row[j] if active[j] > zero else zero
            for unit in range(sizes[i], _up4(sizes[i])):
                d[i % 2, unit] = zero
    return loss


@njit(cache=True)
def _copy_weights(flat, padded, outs, ins, columns, into_padded):  # type: ignore[no-untyped-def]
    """Between a plain matrix (outs, ins) and its padded copy with `columns` columns."""
    for i in range(outs):
        for k in range(ins):
            if into_padded:
                padded[i * columns + k] = flat[i * ins + k]
            else:
                flat[i * ins + k] = padded[i * columns + k]


@njit(cache=True)
def _copy_mlp(flat, padded, sizes, into_padded):  # type: ignore[no-untyped-def]
    at, to = 0, 0
    for i in range(sizes.size - 1):
        outs, ins = sizes[i + 1], sizes[i] + 1
        _copy_weights(flat[at:], padded[to:], outs, ins, _up4(ins), into_padded)
        at += outs * ins
        to += _up4(outs) * _up4(ins)


@njit(cache=True)
def _mlp_sizes(sizes):  # type: ignore[no-untyped-def]
    """Rows of the widest layer and padded parameters of one network."""
    widest, size = 0, 0
    for i in range(sizes.size):
        widest = max(widest, _up4(sizes[i] + 1))
    for i in range(sizes.size - 1):
        size += _up4(sizes[i] + 1) * _up4(sizes[i + 1])
    return widest, size


@njit(parallel=True, cache=True)
def train_mlp(  # type: ignore[no-untyped-def]
    x, y, weights, parameters, sizes, learning_rate, beta1, beta2, decay, min_delta, patience, max_epochs
):
    """Train every network in place. x (N, l, d), y (N, l), weights (N, K, l) with 0 = not seen, parameters (N, K, P).

    Returns epochs (N, K) and the last loss (N, K).
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
        points = _up16(seen)
        a = np.zeros((depth + 1, widest, points), np.float32)
        d = np.zeros((2, widest, points), np.float32)
        target = np.zeros(points, np.float32)
        weight = np.zeros(points, np.float32)
        at = 0
        for j in range(rows):
            if weights[run, member, j] > 0:
                for k in range(sizes[0]):
                    a[0, k, at] = x[run, j, k]
                target[at] = y[run, j]
                weight[at] = weights[run, member, j] / total
                at += 1
        a[0, sizes[0]] = 1
        p = np.zeros(size, np.float32)
        g, m, v = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        _copy_mlp(parameters[run, member], p, sizes, True)
        best, waited, epoch, loss = np.inf, 0, 0, np.float32(0)
        while epoch < max_epochs and waited <= patience:
            loss = _mlp_gradient(p, g, a, d, sizes, target, weight, points)
            epoch += 1
            if not np.isfinite(loss):
                break
            _adam(p, g, m, v, epoch, learning_rate, beta1, beta2, decay)
            if loss < best - min_delta:
                best = loss
                waited = 0
            else:
                waited += 1
        epochs[run, member] = epoch
        losses[run, member] = loss
        _copy_mlp(parameters[run, member], p, sizes, False)
    return epochs, losses


@njit(parallel=True, cache=True)
def predict_mlp(x, parameters, sizes):  # type: ignore[no-untyped-def]
    """Every network at the points of its run, BLOCK at a time. x (N or 1, n, d), parameters (N, K, P) -> (N, K, n)."""
    runs, members, _ = parameters.shape
    count = x.shape[1]
    depth = sizes.size - 1
    widest, size = _mlp_sizes(sizes)
    out = np.empty((runs, members, count), np.float32)
    for net in prange(runs * members):
        run, member = net // members, net % members
        at = x[run if x.shape[0] > 1 else 0]
        p = np.zeros(size, np.float32)
        _copy_mlp(parameters[run, member], p, sizes, True)
        a = np.zeros((depth + 1, widest, BLOCK), np.float32)
        a[0, sizes[0]] = 1
        for start in range(0, count, BLOCK):
            stop = min(start + BLOCK, count)
            for j in range(start, stop):
                for k in range(sizes[0]):
                    a[0, k, j - start] = at[j, k]
            _mlp_forward(p, a, sizes, BLOCK)
            out[run, member, start:stop] = a[depth, 0, : stop - start]
    return out


@njit(cache=True)
def _next_bits(state):  # type: ignore[no-untyped-def]
    """SplitMix64."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, z ^ (z >> np.uint64(31))


@njit(fastmath=FAST, cache=True)
def _normalise(z, gain, shift, out, count, points, epsilon, scale, drop):  # type: ignore[no-untyped-def]
    """Batch normalisation, ReLU and dropout of one unit over its points; z becomes the normalised value."""
    zero = np.float32(0)
    total = zero
    for j in range(count):
        total += z[j]
    mean = total / np.float32(count)
    square = zero
    for j in range(count):
        square += (z[j] - mean) * (z[j] - mean)
    variance = square / np.float32(count)
    inverse = np.float32(1) / np.sqrt(variance + np.float32(epsilon))
    for j in range(points):
        value = (z[j] - mean) * inverse
        z[j] = value
        out[j] = max(gain * value + shift, zero) * (scale * drop[j])
    return mean, variance, inverse


@njit(fastmath=FAST, cache=True)
def _gram_loss(psi, gram, target, coefficient, width, points):  # type: ignore[no-untyped-def]
    """¼ Σ c (ψᵢᵀψⱼ − δᵢδⱼ)²; `gram` becomes c (ψᵢᵀψⱼ − δᵢδⱼ), half the gradient by the Gram matrix, symmetrised."""
    _product(psi, psi, gram, _up4(width), points, points, True)
    loss = np.float32(0)
    for i in range(points):
        row, weight = gram[i], coefficient[i]
        own = target[i]
        for j in range(points):
            error = row[j] - own * target[j]
            loss += weight[j] * error * error
            row[j] = weight[j] * error
    return loss / np.float32(4)


@njit(fastmath=FAST, cache=True)
def _embed(p, a, sizes, running, points, epsilon):  # type: ignore[no-untyped-def]
    """ψ with running statistics and without dropout; the result stands in a[depth]."""
    zero, one = np.float32(0), np.float32(1)
    depth = sizes.size - 1
    at, unit_at = 0, 0
    for i in range(depth - 1):
        inner, outer, units = _up4(sizes[i]), _up4(sizes[i + 1]), sizes[i + 1]
        _product(p[at : at + outer * inner].reshape(outer, inner), a[i], a[i + 1], inner, outer, points, False)
        at += outer * inner
        for unit in range(units):
            gain = p[at + unit] / np.sqrt(running[1, unit_at + unit] + np.float32(epsilon))
            shift = p[at + outer + unit] - gain * running[0, unit_at + unit]
            row = a[i + 1, unit]
            for j in range(points):
                row[j] = max(gain * row[j] + shift, zero)
        for unit in range(units, a.shape[1]):
            a[i + 1, unit] = zero
        at += 2 * outer
        unit_at += units
    a[depth - 1, sizes[depth - 1]] = one
    inner, outer = _up4(sizes[depth - 1] + 1), _up4(sizes[depth])
    _product(p[at : at + outer * inner].reshape(outer, inner), a[depth - 1], a[depth], inner, outer, points, False)


@njit(fastmath=FAST, cache=True)
def _embedding_gradient(  # type: ignore[no-untyped-def]
    p,
    g,
    a,
    z,
    d,
    inverse,
    sizes,
    running,
    target,
    coefficient,
    gram,
    drop,
    count,
    points,
    dropout,
    momentum,
    epsilon,
    state,
):
    """Loss on the training pairs and its gradient, with batch statistics and dropout; updates running statistics."""
    zero, one = np.float32(0), np.float32(1)
    depth = sizes.size - 1
    scale = np.float32(1 / (1 - dropout))
    threshold = np.uint64(round(dropout * 65536))
    unbiased = np.float32(count / max(count - 1, 1))
    keep = np.float32(1 - momentum)
    share = np.float32(momentum)
    at, unit_at = 0, 0
    for i in range(depth - 1):
        inner, outer, units = _up4(sizes[i]), _up4(sizes[i + 1]), sizes[i + 1]
        _product(p[at : at + outer * inner].reshape(outer, inner), a[i], z[i], inner, outer, points, False)
        at += outer * inner
        for unit in range(units):
            for block in range(0, points, 4):
                state, word = _next_bits(state)
                for lane in range(4):
                    kept = ((word >> np.uint64(16 * lane)) & np.uint64(0xFFFF)) >= threshold
                    drop[block + lane] = one if kept else zero
            mean, variance, inv = _normalise(
                z[i, unit], p[at + unit], p[at + outer + unit], a[i + 1, unit], count, points, epsilon, scale, drop
            )
            inverse[unit_at + unit] = inv
            running[0, unit_at + unit] = keep * running[0, unit_at + unit] + share * mean
            running[1, unit_at + unit] = keep * running[1, unit_at + unit] + share * variance * unbiased
        for unit in range(units, a.shape[1]):
            a[i + 1, unit] = zero
        at += 2 * outer
        unit_at += units
    a[depth - 1, sizes[depth - 1]] = one
    inner, outer = _up4(sizes[depth - 1] + 1), _up4(sizes[depth])
    w = p[at : at + outer * inner].reshape(outer, inner)
    _product(w, a[depth - 1], a[depth], inner, outer, points, False)
    loss = _gram_loss(a[depth], gram, target, coefficient, sizes[depth], points)
    _product(a[depth], gram, d[depth % 2], points, outer, points, False)  # dψ = ψ · (symmetrised residual)
    _outer(d[depth % 2], a[depth - 1], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
    _product(w, d[depth % 2], d[(depth - 1) % 2], outer, _up4(sizes[depth - 1]), points, True)
    for i in range(depth - 2, -1, -1):
        inner, outer, units = _up4(sizes[i]), _up4(sizes[i + 1]), sizes[i + 1]
        at -= 2 * outer
        unit_at -= units
        back = d[(i + 1) % 2]
        for unit in range(units):
            row, active, normal = back[unit], a[i + 1, unit], z[i, unit]
            by_shift, by_gain = zero, zero
            for j in range(count):
                row[j] = scale * row[j] if active[j] > zero else zero
                by_shift += row[j]
                by_gain += row[j] * normal[j]
            g[at + unit] = by_gain
            g[at + outer + unit] = by_shift
            factor = p[at + unit] * inverse[unit_at + unit]
            mean_shift, mean_gain = by_shift / np.float32(count), by_gain / np.float32(count)
            for j in range(count):
                row[j] = factor * (row[j] - mean_shift - normal[j] * mean_gain)
            for j in range(count, points):
                row[j] = zero
        for unit in range(units, outer):
            back[unit] = zero
        at -= outer * inner
        _outer(back, a[i], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
        if i > 0:
            w = p[at : at + outer * inner].reshape(outer, inner)
            _product(w, back, d[i % 2], outer, inner, points, True)
    return loss, state


@njit(cache=True)
def _copy_embedding(flat, padded, sizes, into_padded):  # type: ignore[no-untyped-def]
    depth = sizes.size - 1
    at, to = 0, 0
    for i in range(depth - 1):
        outs, ins = sizes[i + 1], sizes[i]
        _copy_weights(flat[at:], padded[to:], outs, ins, _up4(ins), into_padded)
        at += outs * ins
        to += _up4(outs) * _up4(ins)
        for _ in range(2):
            _copy_weights(flat[at:], padded[to:], 1, outs, _up4(outs), into_padded)
            at += outs
            to += _up4(outs)
    outs, ins = sizes[depth], sizes[depth - 1] + 1
    _copy_weights(flat[at:], padded[to:], outs, ins, _up4(ins), into_padded)


@njit(cache=True)
def _embedding_sizes(sizes):  # type: ignore[no-untyped-def]
    """Rows of the widest layer, padded parameters, and hidden units of one embedding."""
    depth = sizes.size - 1
    widest, size, units = 0, 0, 0
    for i in range(depth + 1):
        widest = max(widest, _up4(sizes[i] + 1))
    for i in range(depth - 1):
        size += _up4(sizes[i]) * _up4(sizes[i + 1]) + 2 * _up4(sizes[i + 1])
        units += sizes[i + 1]
    return widest, size + _up4(sizes[depth - 1] + 1) * _up4(sizes[depth]), units


@njit(parallel=True, cache=True)
def embed(x, parameters, running, sizes, epsilon):  # type: ignore[no-untyped-def]
    """ψ of every run at its points, BLOCK at a time. x (N, n, p), parameters (N, P) -> (N, n, width)."""
    runs, count = x.shape[0], x.shape[1]
    depth = sizes.size - 1
    widest, size, _ = _embedding_sizes(sizes)
    out = np.empty((runs, count, sizes[depth]), np.float32)
    for run in prange(runs):
        p = np.zeros(size, np.float32)
        _copy_embedding(parameters[run], p, sizes, True)
        a = np.zeros((depth + 1, widest, BLOCK), np.float32)
        for start in range(0, count, BLOCK):
            stop = min(start + BLOCK, count)
            for j in range(start, stop):
                for k in range(sizes[0]):
                    a[0, k, j - start] = x[run, j, k]
            _embed(p, a, sizes, running[run], BLOCK, epsilon)
            for j in range(start, stop):
                for k in range(sizes[depth]):
                    out[run, j, k] = a[depth, k, j - start]
    return out


@njit(parallel=True, cache=True)
def train_embedding(  # type: ignore[no-untyped-def]
    x,
    bias,
    split,
    parameters,
    running,
    seeds,
    sizes,
    dropout,
    learning_rate,
    beta1,
    beta2,
    decay,
    momentum,
    epsilon,
    patience,
    max_epochs,
):
    """Train ψ of every run in place, keeping the epoch with the least validation loss.

    x (N, l, p), bias (N, l), split (N, l, l) symmetric with 0 = no pair, 1 = training, 2 = validation,
    parameters (N, P), running (N, 2, units), seeds (N,). Returns epochs (N,) and the least validation loss (N,).
    """
    runs, rows = bias.shape
    depth = sizes.size - 1
    widest, size, units = _embedding_sizes(sizes)
    epochs = np.zeros(runs, np.int64)
    losses = np.zeros(runs, np.float32)
    for run in prange(runs):
        count = 0
        for j in range(rows):
            if split[run, j, j] > 0:
                count += 1
        points = _up16(count)
        a = np.zeros((depth + 1, widest, points), np.float32)
        z = np.zeros((depth - 1, widest, points), np.float32)
        d = np.zeros((2, widest, points), np.float32)
        target = np.zeros(points, np.float32)
        place = np.zeros(rows, np.int64)
        at = 0
        for j in range(rows):
            if split[run, j, j] > 0:
                for k in range(sizes[0]):
                    a[0, k, at] = x[run, j, k]
                target[at] = bias[run, j]
                place[at] = j
                at += 1
        fit = np.zeros((points, points), np.float32)
        check = np.zeros((points, points), np.float32)
        fits, checks = 0, 0
        for i in range(count):
            for j in range(i + 1):
                kind = split[run, place[i], place[j]]
                fits += kind == 1
                checks += kind == 2
        for i in range(count):
            for j in range(count):
                kind = split[run, place[i], place[j]]
                double = 2.0 if i == j else 1.0
                if kind == 1:
                    fit[i, j] = 2 * double / fits
                if kind == 2:
                    check[i, j] = 2 * double / checks
        if checks == 0:
            check[:] = fit
        gram = np.zeros((points, points), np.float32)
        drop = np.ones(points, np.float32)
        inverse = np.zeros(units, np.float32)
        p = np.zeros(size, np.float32)
        g, m, v, best_p = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        _copy_embedding(parameters[run], p, sizes, True)
        best_running = running[run].copy()
        best_p[:] = p
        state = np.uint64(seeds[run])
        best, waited, epoch = np.inf, 0, 0
        while epoch < max_epochs and waited < patience:
            loss, state = _embedding_gradient(
                p,
                g,
                a,
                z,
                d,
                inverse,
                sizes,
                running[run],
                target,
                fit,
                gram,
                drop,
                count,
                points,
                dropout,
                momentum,
                epsilon,
                state,
            )
            epoch += 1
            if not np.isfinite(loss):
                break
            _adam(p, g, m, v, epoch, learning_rate, beta1, beta2, decay)
            _embed(p, a, sizes, running[run], points, epsilon)
            loss = _gram_loss(a[depth], gram, target, check, sizes[depth], points)
            if loss < best:
                best = loss
                best_p[:] = p
                best_running[:] = running[run]
                waited = 0
            else:
                waited += 1
        epochs[run] = epoch
        losses[run] = best
        _copy_embedding(parameters[run], best_p, sizes, False)
        running[run] = best_running
    return epochs, losses


def mlp_gradient(x, y, parameters, sizes):  # type: ignore[no-untyped-def]
    """Loss and gradient of one network on all its points, in the plain layout: what tests compare with autograd."""
    depth, rows = len(sizes) - 1, x.shape[0]
    sizes = np.asarray(sizes)
    points = _up16(rows)
    widest = max(_up4(s + 1) for s in sizes)
    a = np.zeros((depth + 1, widest, points), np.float32)
    a[0, : sizes[0], :rows] = x.T
    a[0, sizes[0]] = 1
    d = np.zeros((2, widest, points), np.float32)
    target, weight = np.zeros(points, np.float32), np.zeros(points, np.float32)
    target[:rows], weight[:rows] = y, 1 / rows
    shapes = [(int(o), int(i) + 1) for i, o in itertools.pairwise(sizes)]
    p = np.concatenate(
        [
            np.pad(w.reshape(s), ((0, _up4(s[0]) - s[0]), (0, _up4(s[1]) - s[1]))).ravel()
            for w, s in _blocks(parameters, shapes)
        ]
    ).astype(np.float32)
    g = np.zeros_like(p)
    loss = _mlp_gradient(p, g, a, d, sizes, target, weight, points)
    padded = [(_up4(o), _up4(i)) for o, i in shapes]
    parts = [w.reshape(q)[: s[0], : s[1]].ravel() for (w, q), s in zip(_blocks(g, padded), shapes, strict=True)]
    return float(loss), np.concatenate(parts)


def _blocks(flat, shapes):  # type: ignore[no-untyped-def]
    """Consecutive pieces of a row of numbers, with their shapes."""
    ends = np.cumsum([o * i for o, i in shapes])
    return list(zip(np.split(flat, ends[:-1]), shapes, strict=True))


def threads() -> int:
    """Threads the kernels use; results do not depend on it."""
    return int(numba.get_num_threads())
