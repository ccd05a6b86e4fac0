"""The embedding ψ on the CPU: training on its Gram matrix, one run per thread."""

import numpy as np
from numba import njit, prange

from aicau.ensembles.kernels.cpu import FAST, adam, copy_weights, product, up4, up16, weight_gradient


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
    product(psi, psi, gram, up4(width), points, points, True)
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
        inner, outer, units = up4(sizes[i]), up4(sizes[i + 1]), sizes[i + 1]
        product(p[at : at + outer * inner].reshape(outer, inner), a[i], a[i + 1], inner, outer, points, False)
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
    inner, outer = up4(sizes[depth - 1] + 1), up4(sizes[depth])
    product(p[at : at + outer * inner].reshape(outer, inner), a[depth - 1], a[depth], inner, outer, points, False)


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
        inner, outer, units = up4(sizes[i]), up4(sizes[i + 1]), sizes[i + 1]
        product(p[at : at + outer * inner].reshape(outer, inner), a[i], z[i], inner, outer, points, False)
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
    inner, outer = up4(sizes[depth - 1] + 1), up4(sizes[depth])
    w = p[at : at + outer * inner].reshape(outer, inner)
    product(w, a[depth - 1], a[depth], inner, outer, points, False)
    loss = _gram_loss(a[depth], gram, target, coefficient, sizes[depth], points)
    product(a[depth], gram, d[depth % 2], points, outer, points, False)  # dψ = ψ · (symmetrised residual)
    weight_gradient(d[depth % 2], a[depth - 1], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
    product(w, d[depth % 2], d[(depth - 1) % 2], outer, up4(sizes[depth - 1]), points, True)
    for i in range(depth - 2, -1, -1):
        inner, outer, units = up4(sizes[i]), up4(sizes[i + 1]), sizes[i + 1]
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
        weight_gradient(back, a[i], g[at : at + outer * inner].reshape(outer, inner), inner, outer, points)
        if i > 0:
            w = p[at : at + outer * inner].reshape(outer, inner)
            product(w, back, d[i % 2], outer, inner, points, True)
    return loss, state


@njit(cache=True)
def _copy_embedding(flat, padded, sizes, into_padded):  # type: ignore[no-untyped-def]
    depth = sizes.size - 1
    at, to = 0, 0
    for i in range(depth - 1):
        outs, ins = sizes[i + 1], sizes[i]
        copy_weights(flat[at:], padded[to:], outs, ins, up4(ins), into_padded)
        at += outs * ins
        to += up4(outs) * up4(ins)
        for _ in range(2):
            copy_weights(flat[at:], padded[to:], 1, outs, up4(outs), into_padded)
            at += outs
            to += up4(outs)
    outs, ins = sizes[depth], sizes[depth - 1] + 1
    copy_weights(flat[at:], padded[to:], outs, ins, up4(ins), into_padded)


@njit(cache=True)
def _embedding_sizes(sizes):  # type: ignore[no-untyped-def]
    """Rows of the widest layer, padded parameters, and hidden units of one embedding."""
    depth = sizes.size - 1
    widest, size, units = 0, 0, 0
    for i in range(depth + 1):
        widest = max(widest, up4(sizes[i] + 1))
    for i in range(depth - 1):
        size += up4(sizes[i]) * up4(sizes[i + 1]) + 2 * up4(sizes[i + 1])
        units += sizes[i + 1]
    return widest, size + up4(sizes[depth - 1] + 1) * up4(sizes[depth]), units


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
        points = up16(count)
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
            adam(p, g, m, v, epoch, learning_rate, beta1, beta2, decay)
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
