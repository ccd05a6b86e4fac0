"""The embedding ψ on the CPU: training on its Gram matrix, one run per thread."""

import numpy as np
from numba import prange

from aicau.ensembles.kernels.cpu import FAST, adam, njit


@njit(forceinline=True)
def _next_bits(state):  # type: ignore[no-untyped-def]
    """SplitMix64."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, z ^ (z >> np.uint64(31))


@njit(fastmath=FAST, forceinline=True)
def _normalise(z, weight, total, gain, shift, out, epsilon, scale, drop):  # type: ignore[no-untyped-def]
    """Batch normalisation, ReLU and dropout of one unit over its points; z becomes the normalised value."""
    zero, count = np.float32(0), z.size
    mean = zero
    for j in range(count):
        mean += weight[j] * z[j]
    mean /= total
    variance = zero
    for j in range(count):
        variance += weight[j] * (z[j] - mean) * (z[j] - mean)
    variance /= total
    inverse = np.float32(1) / np.sqrt(variance + np.float32(epsilon))
    for j in range(count):
        value = (z[j] - mean) * inverse
        z[j] = value
        out[j] = max(gain * value + shift, zero) * (scale * drop[j])
    return mean, variance, inverse


@njit(fastmath=FAST, forceinline=True)
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


@njit(fastmath=FAST, forceinline=True)
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


@njit(forceinline=True)
def _last(p, a, sizes):  # type: ignore[no-untyped-def]
    """The last layer; the row after the units below it is one: its weights are the biases."""
    depth = sizes.size - 1
    ins, outs = sizes[depth - 1] + 1, sizes[depth]
    a[depth - 1, sizes[depth - 1]] = np.float32(1)
    np.dot(p.reshape(outs, ins), a[depth - 1, :ins], a[depth, :outs])


@njit(fastmath=FAST, forceinline=True)
def _embedding_gradient(  # type: ignore[no-untyped-def]
    p, g, a, z, d, inverse, sizes, running, target, weight, coefficient, gram, drop, dropout, momentum, epsilon, state
):
    """Loss on the training pairs (weighed by `coefficient`) and its gradient, with dropout; updates `running` by batch
    statistics, in which a point counts `weight` times."""
    zero, one = np.float32(0), np.float32(1)
    depth, count = sizes.size - 1, target.size
    scale = np.float32(1 / (1 - dropout))
    threshold = np.uint64(round(dropout * 65536))
    total = weight.sum()
    unbiased = np.float32(total / max(total - 1, 1))
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
                z[i, unit], weight, total, p[at + unit], p[at + outs + unit], a[i + 1, unit], epsilon, scale, drop
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
            mean_shift, mean_gain = by_shift / total, by_gain / total
            for j in range(count):
                row[j] = factor * (row[j] - weight[j] * (mean_shift + normal[j] * mean_gain))
        at -= outs * ins
        np.dot(back, a[i, :ins].T, g[at : at + outs * ins].reshape(outs, ins))
        if i > 0:
            np.dot(p[at : at + outs * ins].reshape(outs, ins).T, back, d[i % 2, :ins])
    return loss, state


@njit(forceinline=True)
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


@njit(forceinline=True)
def _ranked(rank, seen):  # type: ignore[no-untyped-def]
    """The training pairs as places among the seen points, in the order of their rank."""
    pairs = np.zeros((seen.size * (seen.size + 1) // 2, 2), np.int64)
    number = 0
    for i in range(seen.size):
        for j in range(i + 1):
            at = rank[seen[i], seen[j]]
            if at >= 0:
                pairs[at, 0], pairs[at, 1] = i, j
                number += 1
    return pairs[:number]


@njit(forceinline=True)
def _deal(pairs, x, bias, columns, a, target, weight, coefficient):  # type: ignore[no-untyped-def]
    """Lay out a mini-batch: its points as columns, how often each stands in it, and the weights of its pairs."""
    everything, used = weight.size == columns.size, 0
    weight[:] = np.float32(0)
    coefficient[:] = np.float32(0)
    columns[:] = -1
    for pair in range(len(pairs)):
        for side in range(2):
            point = pairs[pair, side]
            if columns[point] < 0:
                columns[point] = point if everything else used
                for feature in range(x.shape[1]):
                    a[feature, columns[point]] = x[point, feature]
                target[columns[point]] = bias[point]
                used += 1
            weight[columns[point]] += np.float32(1)
        i, j = columns[pairs[pair, 0]], columns[pairs[pair, 1]]
        coefficient[i, j] = coefficient[j, i] = np.float32((4.0 if i == j else 2.0) / len(pairs))


@njit(parallel=True)
def train_embedding(  # type: ignore[no-untyped-def]
    x, bias, split, parameters, running, seeds, rank, steps, moves, sizes, size,
    dropout, learning_rate, beta1, beta2, decay, momentum, epsilon, patience, max_epochs,
):  # fmt: skip
    """Train ψ of every run in place, keeping the epoch with the least validation loss: gives epochs (N,) and that loss.

    Shapes as in `kernels.train_embedding`; rank, steps and moves as in `pairs`, size: pairs of a mini-batch or 0.
    """
    runs = len(bias)
    depth, widest = sizes.size - 1, sizes.max() + 1
    epochs = np.zeros(runs, np.int64)
    losses = np.zeros(runs, np.float32)
    for run in prange(runs):
        seen = np.flatnonzero(np.diag(split[run]) > 0)
        count = seen.size
        points, biases = x[run][seen], bias[run][seen]
        kinds = split[run][seen][:, seen]
        check, checks = _pair_weights(kinds, 2)
        if checks == 0:
            check, _ = _pair_weights(kinds, 1)
        b = np.zeros((depth + 1, widest, count), np.float32)  # values at all points, for validation
        b[0, : sizes[0]] = points.T
        whole = np.zeros((count, count), np.float32)
        width = min(2 * size, count) if size > 0 else count
        a = np.zeros((depth + 1, widest, width), np.float32)
        z = np.zeros((depth - 1, widest, width), np.float32)
        d = np.zeros((2, widest, width), np.float32)
        gram = np.zeros((width, width), np.float32)
        columns, pairs = np.zeros(count, np.int64), np.zeros((0, 2), np.int64)
        if size > 0:
            target, weight, fit = np.zeros(width, np.float32), np.zeros(width, np.float32), np.zeros_like(gram)
            pairs = _ranked(rank[run], seen)
        else:
            a[0, : sizes[0]] = points.T
            target, weight = biases, np.ones(width, np.float32)
            fit, _ = _pair_weights(kinds, 1)
        order = np.zeros_like(pairs)
        drop = np.ones((width + 15) // 16 * 16, np.float32)
        inverse = np.zeros(running.shape[2], np.float32)
        p, now = parameters[run], running[run]
        g, m, v = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        best_p, best_running = p.copy(), now.copy()
        state = np.uint64(seeds[run])
        best, waited, epoch, step, loss = np.inf, 0, 0, 0, np.float32(0)
        while epoch < max_epochs and waited < patience:
            number = len(pairs)
            for at in range(number):
                order[(moves[run, epoch, 0] * at + moves[run, epoch, 1]) % number] = pairs[at]
            for batch in range(steps[run]):
                some = order[-(-batch * number // steps[run]) : -(-(batch + 1) * number // steps[run])]
                if size > 0:
                    _deal(some, points, biases, columns, a[0], target, weight, fit)
                loss, state = _embedding_gradient(
                    p, g, a, z, d, inverse, sizes, now, target, weight, fit, gram, drop,
                    dropout, momentum, epsilon, state,
                )  # fmt: skip
                step += 1
                if not np.isfinite(loss):
                    break
                adam(p, g, m, v, step, learning_rate, beta1, beta2, decay)
            epoch += 1
            if not np.isfinite(loss):
                break
            _embed(p, b, sizes, now, epsilon)
            loss = _gram_loss(b[depth, : sizes[depth]], whole, biases, check)
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
