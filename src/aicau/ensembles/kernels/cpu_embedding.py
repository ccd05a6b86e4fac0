"""The embedding ψ on the CPU: training on its Gram matrix, one run per thread."""

import numpy as np
from numba import njit, prange

from aicau.ensembles.kernels.cpu import FAST, adam


@njit(cache=True)
def _next_bits(state):  # type: ignore[no-untyped-def]
    """SplitMix64."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, z ^ (z >> np.uint64(31))


@njit(fastmath=FAST, cache=True)
def _normalise(z, gain, shift, out, epsilon, scale, drop):  # type: ignore[no-untyped-def]
    """Batch normalisation, ReLU and dropout of one unit over its points; z becomes the normalised value."""
    zero, count = np.float32(0), z.size
    total = zero
    for j in range(count):
        total += z[j]
    mean = total / np.float32(count)
    square = zero
    for j in range(count):
        square += (z[j] - mean) * (z[j] - mean)
    variance = square / np.float32(count)
    inverse = np.float32(1) / np.sqrt(variance + np.float32(epsilon))
    for j in range(count):
        value = (z[j] - mean) * inverse
        z[j] = value
        out[j] = max(gain * value + shift, zero) * (scale * drop[j])
    return mean, variance, inverse


@njit(fastmath=FAST, cache=True)
def _gram_loss(psi, gram, target, coefficient):  # type: ignore[no-untyped-def]
    """¼ Σ c (ψᵢᵀψⱼ − δᵢδⱼ)²; `gram` becomes c (ψᵢᵀψⱼ − δᵢδⱼ), half the gradient by the Gram matrix, symmetrised."""
    np.dot(psi.T, psi, gram)
    loss = np.float32(0)
    for i in range(target.size):
        row, weight = gram[i], coefficient[i]
        own = target[i]
        for j in range(target.size):
            error = row[j] - own * target[j]
            loss += weight[j] * error * error
            row[j] = weight[j] * error
    return loss / np.float32(4)


@njit(fastmath=FAST, cache=True)
def _embed(p, a, sizes, running, epsilon):  # type: ignore[no-untyped-def]
    """ψ with running statistics and without dropout; the result stands in a[depth]."""
    zero = np.float32(0)
    depth = sizes.size - 1
    at, unit_at = 0, 0
    for i in range(depth - 1):
        ins, outs = sizes[i], sizes[i + 1]
        np.dot(p[at : at + outs * ins].reshape(outs, ins), a[i, :ins], a[i + 1, :outs])
        at += outs * ins
        for unit in range(outs):
            gain = p[at + unit] / np.sqrt(running[1, unit_at + unit] + np.float32(epsilon))
            shift = p[at + outs + unit] - gain * running[0, unit_at + unit]
            row = a[i + 1, unit]
            for j in range(row.size):
                row[j] = max(gain * row[j] + shift, zero)
        at += 2 * outs
        unit_at += outs
    _last(p[at:], a, sizes)


@njit(cache=True)
def _last(p, a, sizes):  # type: ignore[no-untyped-def]
    """The last layer; the row after the units below it is one: its weights are the biases."""
    depth = sizes.size - 1
    ins, outs = sizes[depth - 1] + 1, sizes[depth]
    a[depth - 1, sizes[depth - 1]] = np.float32(1)
    np.dot(p.reshape(outs, ins), a[depth - 1, :ins], a[depth, :outs])


@njit(fastmath=FAST, cache=True)
def _embedding_gradient(  # type: ignore[no-untyped-def]
    p, g, a, z, d, inverse, sizes, running, target, coefficient, gram, drop, dropout, momentum, epsilon, state
):
    """Loss on the training pairs and its gradient, with batch statistics and dropout; updates running statistics."""
    zero, one = np.float32(0), np.float32(1)
    depth, count = sizes.size - 1, target.size
    scale = np.float32(1 / (1 - dropout))
    threshold = np.uint64(round(dropout * 65536))
    unbiased = np.float32(count / max(count - 1, 1))
    keep, share = np.float32(1 - momentum), np.float32(momentum)
    at, unit_at = 0, 0
    for i in range(depth - 1):
        ins, outs = sizes[i], sizes[i + 1]
        np.dot(p[at : at + outs * ins].reshape(outs, ins), a[i, :ins], z[i, :outs])
        at += outs * ins
        for unit in range(outs):
            for block in range(0, drop.size, 4):
                state, word = _next_bits(state)
                for lane in range(4):
                    kept = ((word >> np.uint64(16 * lane)) & np.uint64(0xFFFF)) >= threshold
                    drop[block + lane] = one if kept else zero
            mean, variance, inv = _normalise(
                z[i, unit], p[at + unit], p[at + outs + unit], a[i + 1, unit], epsilon, scale, drop
            )
            inverse[unit_at + unit] = inv
            running[0, unit_at + unit] = keep * running[0, unit_at + unit] + share * mean
            running[1, unit_at + unit] = keep * running[1, unit_at + unit] + share * variance * unbiased
        at += 2 * outs
        unit_at += outs
    _last(p[at:], a, sizes)
    ins, outs = sizes[depth - 1] + 1, sizes[depth]
    psi, back = a[depth, :outs], d[depth % 2, :outs]
    loss = _gram_loss(psi, gram, target, coefficient)
    np.dot(psi, gram, back)  # dψ = ψ · (symmetrised residual)
    np.dot(back, a[depth - 1, :ins].T, g[at:].reshape(outs, ins))
    np.dot(p[at:].reshape(outs, ins).T, back, d[(depth - 1) % 2, :ins])
    for i in range(depth - 2, -1, -1):
        ins, outs = sizes[i], sizes[i + 1]
        at -= 2 * outs
        unit_at -= outs
        back = d[(i + 1) % 2, :outs]
        for unit in range(outs):
            row, active, normal = back[unit], a[i + 1, unit], z[i, unit]
            by_shift, by_gain = zero, zero
            for j in range(count):
                row[j] = scale * row[j] if active[j] > zero else zero
                by_shift += row[j]
                by_gain += row[j] * normal[j]
            g[at + unit] = by_gain
            g[at + outs + unit] = by_shift
            factor = p[at + unit] * inverse[unit_at + unit]
            mean_shift, mean_gain = by_shift / np.float32(count), by_gain / np.float32(count)
            for j in range(count):
                row[j] = factor * (row[j] - mean_shift - normal[j] * mean_gain)
        at -= outs * ins
        np.dot(back, a[i, :ins].T, g[at : at + outs * ins].reshape(outs, ins))
        if i > 0:
            np.dot(p[at : at + outs * ins].reshape(outs, ins).T, back, d[i % 2, :ins])
    return loss, state


@njit(cache=True)
def _pair_weights(split, kind):  # type: ignore[no-untyped-def]
    """Weights of the pairs of one kind in ¼ Σ c (…)²: 2 over their number, twice that on the diagonal."""
    chosen = split == kind
    number = (chosen.sum() + np.diag(chosen).sum()) // 2
    weights = np.zeros(split.shape, np.float32)
    for i in range(len(split)):
        for j in range(len(split)):
            if chosen[i, j]:
                weights[i, j] = (4.0 if i == j else 2.0) / number
    return weights, number


@njit(parallel=True, cache=True)
def train_embedding(  # type: ignore[no-untyped-def]
    x, bias, split, parameters, running, seeds, sizes,
    dropout, learning_rate, beta1, beta2, decay, momentum, epsilon, patience, max_epochs,
):  # fmt: skip
    """Train ψ of every run in place, keeping the epoch with the least validation loss.

    x (N, l, p), bias (N, l), split (N, l, l) symmetric with 0 = no pair, 1 = training, 2 = validation,
    parameters (N, P), running (N, 2, units), seeds (N,). Returns epochs (N,) and the least validation loss (N,).
    """
    runs = len(bias)
    depth, widest = sizes.size - 1, sizes.max() + 1
    epochs = np.zeros(runs, np.int64)
    losses = np.zeros(runs, np.float32)
    for run in prange(runs):
        seen = np.flatnonzero(np.diag(split[run]) > 0)
        count = seen.size
        a = np.zeros((depth + 1, widest, count), np.float32)
        z = np.zeros((depth - 1, widest, count), np.float32)
        d = np.zeros((2, widest, count), np.float32)
        a[0, : sizes[0]] = x[run][seen].T
        target = bias[run][seen]
        pairs = split[run][seen][:, seen]
        fit, _ = _pair_weights(pairs, 1)
        check, checks = _pair_weights(pairs, 2)
        if checks == 0:
            check = fit
        gram = np.zeros((count, count), np.float32)
        drop = np.ones((count + 15) // 16 * 16, np.float32)
        inverse = np.zeros(running.shape[2], np.float32)
        p, now = parameters[run], running[run]
        g, m, v = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        best_p, best_running = p.copy(), now.copy()
        state = np.uint64(seeds[run])
        best, waited, epoch = np.inf, 0, 0
        while epoch < max_epochs and waited < patience:
            loss, state = _embedding_gradient(
                p, g, a, z, d, inverse, sizes, now, target, fit, gram, drop, dropout, momentum, epsilon, state
            )
            epoch += 1
            if not np.isfinite(loss):
                break
            adam(p, g, m, v, epoch, learning_rate, beta1, beta2, decay)
            _embed(p, a, sizes, now, epsilon)
            loss = _gram_loss(a[depth, : sizes[depth]], gram, target, check)
            if loss < best:
                best = loss
                best_p[:] = p
                best_running[:] = now
                waited = 0
            else:
                waited += 1
        epochs[run] = epoch
        losses[run] = best
        p[:] = best_p
        now[:] = best_running
    return epochs, losses
