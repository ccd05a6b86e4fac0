"""Layers of the embedding ψ on CUDA: what `cuda_embedding` calls inside its kernel, one block of points at a time."""

import triton
import triton.language as tl

from aicau.ensembles.kernels.cuda import load_matrix, load_vector, relu, store_matrix, store_vector


@triton.jit
def _tile(at, start, BLOCK: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Addresses of BLOCK rows of a matrix of WIDTH columns."""
    return at + (start + tl.arange(0, BLOCK))[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _merge(z, weights, start, before, mean, square, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean, sum of squared deviations and weight of the points so far, with one more block of them."""
    weight = tl.load(weights + start + tl.arange(0, BLOCK))
    n = tl.sum(weight, 0)
    here = tl.sum(z * weight[:, None], 0) / tl.maximum(n, 1.0)
    away = z - here[None, :]
    gap = here - mean
    share = n / tl.maximum(before + n, 1.0)
    square += tl.sum(away * away * weight[:, None], 0) + gap * gap * (before * share)
    return mean + gap * share, square, before + n


@triton.jit
def _settle(  # type: ignore[no-untyped-def]
    mean, square, total, statistics, running, momentum, epsilon, WIDTH: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Write a layer's batch mean and inverse deviation, and move the running mean and variance."""
    variance = square / total
    store_vector(statistics, mean, WIDTH)
    store_vector(statistics + UNITS, 1.0 / tl.sqrt(variance + epsilon), WIDTH)
    unbiased = square / tl.maximum(total - 1.0, 1.0)
    keep = 1.0 - momentum
    store_vector(running, keep * load_vector(running, WIDTH) + momentum * mean, WIDTH)
    store_vector(running + UNITS, keep * load_vector(running + UNITS, WIDTH) + momentum * unbiased, WIDTH)


@triton.jit
def _deal(  # type: ignore[no-untyped-def]
    rank, code, count, a, b, number, steps, POINTS, BLOCK: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """The mini-batch that each pair is in during this epoch (`pairs.batches`); −1 where it is not for training."""
    for start in range(0, count, BLOCK):
        for other in range(0, count, SPAN):
            columns = other + tl.arange(0, SPAN)
            cells = (start + tl.arange(0, BLOCK))[:, None] * POINTS + columns[None, :]
            real = columns[None, :] < POINTS
            own = tl.load(rank + cells, mask=real, other=-1).to(tl.int64)
            place = (a * own + b) % number
            tl.store(code + cells, tl.where(own >= 0, place * steps // number, -1).to(tl.int32), mask=real)
    tl.debug_barrier()


@triton.jit
def _weigh(  # type: ignore[no-untyped-def]
    code, weights, count, step, POINTS, BLOCK: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """How often each point stands in a mini-batch, and the number of its inputs."""
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, count, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        often = tl.zeros((BLOCK,), tl.float32)
        for other in range(0, count, SPAN):
            columns = other + tl.arange(0, SPAN)
            cells = rows[:, None] * POINTS + columns[None, :]
            here = tl.load(code + cells, mask=columns[None, :] < POINTS, other=-1) == step
            often += tl.sum(tl.where(here, tl.where(rows[:, None] == columns[None, :], 2.0, 1.0), 0.0), 1)
        tl.store(weights + rows, often)
        total += tl.sum(often, 0)
    tl.debug_barrier()
    return total


@triton.jit
def _normal(  # type: ignore[no-untyped-def]
    z, start, statistics, BLOCK: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Normalised values of a hidden layer on a block of points."""
    mean = load_vector(statistics, WIDTH)[None, :]
    inverse = load_vector(statistics + UNITS, WIDTH)[None, :]
    return (tl.load(_tile(z, start, BLOCK, WIDTH)) - mean) * inverse


@triton.jit
def _activation(  # type: ignore[no-untyped-def]
    normal, start, gain, bits, scale, LAYER: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """γ, β (which follows γ), ReLU and dropout."""
    a = relu(normal * load_vector(gain, WIDTH)[None, :] + load_vector(gain + WIDTH, WIDTH)[None, :])
    if DROP:
        rows = (start + tl.arange(0, BLOCK))[:, None]
        kept = tl.load(bits + rows * WIDE + tl.arange(0, WIDTH)[None, :]).to(tl.int32)
        a = tl.where(((kept >> LAYER) & 1) == 1, a * scale, 0.0)
    return a


@triton.jit
def _draw(  # type: ignore[no-untyped-def]
    bits, seed, epoch, start, drop, POINTS, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Which units of a block of points dropout keeps, one bit per hidden layer, from one Philox counter per unit."""
    units = (start + tl.arange(0, BLOCK))[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    r1, r2, r3, _ = tl.randint4x(seed, epoch * (POINTS * WIDE) + units)
    kept = (tl.uint_to_uniform_float(r1) >= drop).to(tl.int32)
    kept += (tl.uint_to_uniform_float(r2) >= drop).to(tl.int32) * 2
    kept += (tl.uint_to_uniform_float(r3) >= drop).to(tl.int32) * 4
    tl.store(bits + units, kept.to(tl.int8))


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    z, to, count, weights, statistics, gain, w, next_statistics, running, bits, scale, momentum, epsilon,
    LAYER: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, INS: tl.constexpr, INP: tl.constexpr,
    OUTP: tl.constexpr, WIDE: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From a hidden layer to the next one before normalisation, with that one's statistics."""
    mean = tl.zeros((OUTP,), tl.float32)
    square = tl.zeros((OUTP,), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    matrix = load_matrix(w, INS, INP, OUTP)
    for start in range(0, count, BLOCK):
        normal = _normal(z, start, statistics, BLOCK, INP, UNITS)
        a = _activation(normal, start, gain, bits, scale, LAYER, DROP, BLOCK, INP, WIDE)
        out = tl.dot(a, matrix, input_precision=PRECISION)
        tl.store(_tile(to, start, BLOCK, OUTP), out)
        mean, square, total = _merge(out, weights, start, total, mean, square, BLOCK)
    _settle(mean, square, total, next_statistics, running, momentum, epsilon, OUTP, UNITS)
    tl.debug_barrier()


@triton.jit
def _slope(  # type: ignore[no-untyped-def]
    z, d, start, weights, total, statistics, gain, by_gain,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Gradient by a layer's values before normalisation; `d` holds that by the values after γ and β."""
    weight = tl.load(weights + start + tl.arange(0, BLOCK))[:, None] / total
    normal = _normal(z, start, statistics, BLOCK, WIDTH, UNITS)
    through = load_vector(by_gain + WIDTH, WIDTH)[None, :] + normal * load_vector(by_gain, WIDTH)[None, :]
    factor = (load_vector(gain, WIDTH) * load_vector(statistics + UNITS, WIDTH))[None, :]
    return factor * (tl.load(_tile(d, start, BLOCK, WIDTH)) - weight * through)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    z, d, statistics, gain, by_gain, low_z, low_d, low_statistics, low_gain, low_by_gain, w, by_w, count,
    weights, total, bits, scale,
    LAYER: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, INS: tl.constexpr, INP: tl.constexpr,
    OUTP: tl.constexpr, WIDE: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From a hidden layer to the one below: gradients by the weights between, and by γ and β below."""
    by_matrix = tl.zeros((INP, OUTP), tl.float32)
    shift_total = tl.zeros((INP,), tl.float32)
    gain_total = tl.zeros((INP,), tl.float32)
    for start in range(0, count, BLOCK):
        by_z = _slope(z, d, start, weights, total, statistics, gain, by_gain, BLOCK, OUTP, UNITS)
        normal = _normal(low_z, start, low_statistics, BLOCK, INP, UNITS)
        a = _activation(normal, start, low_gain, bits, scale, LAYER, DROP, BLOCK, INP, WIDE)
        by_matrix += tl.dot(tl.trans(a), by_z, input_precision=PRECISION)
        back = tl.dot(by_z, tl.trans(load_matrix(w, INS, INP, OUTP)), input_precision=PRECISION)
        back = tl.where(a > 0, back * scale, 0.0)
        tl.store(_tile(low_d, start, BLOCK, INP), back)
        shift_total += tl.sum(back, 0)
        gain_total += tl.sum(back * normal, 0)
    store_matrix(by_w, by_matrix, INS, INP, OUTP)
    store_vector(low_by_gain, gain_total, INP)
    store_vector(low_by_gain + INP, shift_total, INP)
    tl.debug_barrier()


@triton.jit
def _residual(  # type: ignore[no-untyped-def]
    psi, own, target, own_target, split, start, other, kind, POINTS, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ψ of the other block, ψᵢᵀψⱼ − δᵢδⱼ between the blocks, whether `split` says `kind` of each pair, and i − j."""
    rows = start + tl.arange(0, BLOCK)
    columns = other + tl.arange(0, BLOCK)
    others = tl.load(_tile(psi, other, BLOCK, WIDTH))
    error = tl.dot(own, tl.trans(others), input_precision=PRECISION)
    error -= own_target[:, None] * tl.load(target + columns)[None, :]
    chosen = tl.load(split + rows[:, None] * POINTS + columns[None, :]).to(tl.int32) == kind
    return others, error, chosen, rows[:, None] - columns[None, :]


@triton.jit
def _flat(  # type: ignore[no-untyped-def]
    a, w, running, epsilon, INS: tl.constexpr, INP: tl.constexpr, OUTP: tl.constexpr, UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A hidden layer with running statistics and without dropout."""
    z = tl.dot(a, load_matrix(w, INS, INP, OUTP), input_precision=PRECISION)
    gain = load_vector(w + INS * OUTP, OUTP) / tl.sqrt(load_vector(running + UNITS, OUTP) + epsilon)
    shift = load_vector(w + (INS + 1) * OUTP, OUTP)
    return relu((z - load_vector(running, OUTP)[None, :]) * gain[None, :] + shift[None, :])
