"""The embedding ψ on CUDA: all epochs of one fit, and what `cuda_embedding` launches."""

import triton
import triton.language as tl

from aicau.ensembles.kernels.cuda import adam, load_matrix, load_vector, store_matrix, store_vector
from aicau.ensembles.kernels.cuda_layers import (
    _activation,
    _backward,
    _deal,
    _draw,
    _flat,
    _forward,
    _merge,
    _normal,
    _residual,
    _settle,
    _slope,
    _tile,
    _weigh,
)


@triton.jit(do_not_specialize=["patience", "max_epochs", "last_correction"])
def train(  # type: ignore[no-untyped-def]
    x, target, split, rank, code, moves, counts, pair_shares, seeds, parameters, running, best_parameters, best_running,
    corrections, epochs, losses, scratch, weights, bits,
    drop, scale, b1, c1, b2, c2, decay, momentum, epsilon, patience, max_epochs,
    last_correction, POINTS, STORE,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, H3: tl.constexpr,
    DP: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, P3: tl.constexpr, P4: tl.constexpr, WIDE: tl.constexpr,
    SIZE: tl.constexpr, FLAT: tl.constexpr, FLAT_UNITS: tl.constexpr,
    BLOCK: tl.constexpr, SPAN: tl.constexpr, MINI: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (N, POINTS, DP), target (N, POINTS), split (N, POINTS, POINTS) as bytes; rank and moves as in `pairs`, code
    (N, POINTS, POINTS) the mini-batch of each pair; counts (N, 4): valid points, which kind of pair is validated,
    training pairs, mini-batches an epoch; pair_shares (N, 2): one over the number of pairs; packed parameters (N, SIZE)
    and running (N, 2, UNITS), and the same of the best epoch; scratch (N, STORE), weights (N, POINTS) how often a point
    counts in batch statistics, bits (N, POINTS, WIDE).
    """
    UNITS: tl.constexpr = P1 + P2 + P3
    run = tl.program_id(0).to(tl.int64)
    x += run * (POINTS * DP)
    target += run * POINTS
    split += run * (POINTS * POINTS)
    rank += run * (POINTS * POINTS)
    code += run * (POINTS * POINTS)
    moves += run * max_epochs * 2
    weights += run * POINTS
    bits += run * (POINTS * WIDE)
    best_parameters += run * SIZE
    best_running += run * (2 * UNITS)
    z1 = scratch + run * STORE
    z2 = z1 + POINTS * P1
    z3 = z2 + POINTS * P2
    psi = z3 + POINTS * P3
    odd = psi + POINTS * P4
    even = odd + POINTS * WIDE
    t1 = even + POINTS * WIDE  # batch statistics
    t2 = t1 + P1
    t3 = t2 + P2
    r1 = running + run * (2 * UNITS)  # running statistics
    r2 = r1 + P1
    r3 = r2 + P2
    w1 = parameters + run * SIZE  # weights; γ and β follow
    w2 = w1 + (D + 2) * P1
    w3 = w2 + (H1 + 2) * P2
    w4 = w3 + (H2 + 2) * P3
    by_w1 = t1 + 2 * UNITS  # the gradient, packed likewise
    by_w2 = by_w1 + (D + 2) * P1
    by_w3 = by_w2 + (H1 + 2) * P2
    by_w4 = by_w3 + (H2 + 2) * P3
    g1 = w1 + D * P1
    g2 = w2 + H1 * P2
    g3 = w3 + H2 * P3
    by_g1 = by_w1 + D * P1
    by_g2 = by_w2 + H1 * P2
    by_g3 = by_w3 + H2 * P3
    seed = tl.load(seeds + run)
    count = tl.load(counts + 4 * run)
    kind = tl.load(counts + 4 * run + 1)
    number = tl.load(counts + 4 * run + 2).to(tl.int64)
    steps = tl.load(counts + 4 * run + 3)
    fit_share = tl.load(pair_shares + 2 * run)
    check_share = tl.load(pair_shares + 2 * run + 1)
    m = tl.zeros((FLAT,), tl.float32)
    v = tl.zeros((FLAT,), tl.float32)
    best = tl.full((), float("inf"), tl.float32)
    epoch = tl.full((), 0, tl.int32)
    taken = tl.full((), 0, tl.int32)  # steps of Adam
    waited = tl.full((), 0, tl.int32)
    going = (max_epochs > 0) & (patience > 0)
    while going:
        if MINI:
            _deal(
                rank, code, count, tl.load(moves + 2 * epoch), tl.load(moves + 2 * epoch + 1), number, steps,
                POINTS, BLOCK, SPAN,
            )  # fmt: skip
        finite = count > 0
        for step in range(steps):
            share = fit_share
            if MINI:
                share = 2.0 / _weigh(code, weights, count, step, POINTS, BLOCK, SPAN)
            # Forward with batch statistics and dropout; values before normalisation are kept for the way back.
            mean = tl.zeros((P1,), tl.float32)
            square = tl.zeros((P1,), tl.float32)
            total = tl.full((), 0.0, tl.float32)
            for start in range(0, count, BLOCK):
                points = tl.load(_tile(x, start, BLOCK, DP))
                out = tl.dot(points, load_matrix(w1, D, DP, P1), input_precision=PRECISION)
                tl.store(_tile(z1, start, BLOCK, P1), out)
                mean, square, total = _merge(out, weights, start, total, mean, square, BLOCK)
                if DROP:
                    _draw(bits, seed, taken, start, drop, POINTS, BLOCK, WIDE)
            _settle(mean, square, total, t1, r1, momentum, epsilon, P1, UNITS)
            tl.debug_barrier()
            _forward(
                z1, z2, count, weights, t1, g1, w2, t2, r2, bits, scale, momentum, epsilon,
                0, DROP, BLOCK, H1, P1, P2, WIDE, UNITS, PRECISION,
            )  # fmt: skip
            _forward(
                z2, z3, count, weights, t2, g2, w3, t3, r3, bits, scale, momentum, epsilon,
                1, DROP, BLOCK, H2, P2, P3, WIDE, UNITS, PRECISION,
            )  # fmt: skip
            for start in range(0, count, BLOCK):
                normal = _normal(z3, start, t3, BLOCK, P3, UNITS)
                a = _activation(normal, start, g3, bits, scale, 2, DROP, BLOCK, P3, WIDE)
                out = tl.dot(a, load_matrix(w4, H3, P3, P4), input_precision=PRECISION)
                tl.store(_tile(psi, start, BLOCK, P4), out + load_vector(w4 + H3 * P4, P4)[None, :])
            tl.debug_barrier()

            # Loss over training pairs, its gradient by ψ, and back through the last layer.
            loss = tl.full((), 0.0, tl.float32)
            by_last = tl.zeros((P3, P4), tl.float32)
            bias_total = tl.zeros((P4,), tl.float32)
            shift_total = tl.zeros((P3,), tl.float32)
            gain_total = tl.zeros((P3,), tl.float32)
            for start in range(0, count, BLOCK):
                own = tl.load(_tile(psi, start, BLOCK, P4))
                own_target = tl.load(target + start + tl.arange(0, BLOCK))
                by_psi = tl.zeros((BLOCK, P4), tl.float32)
                for other in range(0, count, BLOCK):
                    others, error, chosen, apart = _residual(
                        psi, own, target, own_target, code, start, other, step, POINTS, BLOCK, P4, PRECISION
                    )
                    slope = tl.where(chosen, tl.where(apart == 0, 4.0, 2.0) * share * error, 0.0)
                    loss += 0.25 * tl.sum(tl.sum(slope * error, 1), 0)
                    by_psi += tl.dot(slope, others, input_precision=PRECISION)
                normal = _normal(z3, start, t3, BLOCK, P3, UNITS)
                a = _activation(normal, start, g3, bits, scale, 2, DROP, BLOCK, P3, WIDE)
                by_last += tl.dot(tl.trans(a), by_psi, input_precision=PRECISION)
                bias_total += tl.sum(by_psi, 0)
                back = tl.dot(by_psi, tl.trans(load_matrix(w4, H3, P3, P4)), input_precision=PRECISION)
                back = tl.where(a > 0, back * scale, 0.0)
                tl.store(_tile(odd, start, BLOCK, P3), back)
                shift_total += tl.sum(back, 0)
                gain_total += tl.sum(back * normal, 0)
            store_matrix(by_w4, by_last, H3, P3, P4)
            store_vector(by_w4 + H3 * P4, bias_total, P4)
            store_vector(by_g3, gain_total, P3)
            store_vector(by_g3 + P3, shift_total, P3)
            tl.debug_barrier()
            loss = tl.where(count > 0, loss, float("nan"))
            finite = finite & (tl.abs(loss) < float("inf"))
            _backward(
                z3, odd, t3, g3, by_g3, z2, even, t2, g2, by_g2, w3, by_w3, count, weights, total,
                bits, scale,
                1, DROP, BLOCK, H2, P2, P3, WIDE, UNITS, PRECISION,
            )  # fmt: skip
            _backward(
                z2, even, t2, g2, by_g2, z1, odd, t1, g1, by_g1, w2, by_w2, count, weights, total,
                bits, scale,
                0, DROP, BLOCK, H1, P1, P2, WIDE, UNITS, PRECISION,
            )  # fmt: skip
            first = tl.zeros((DP, P1), tl.float32)
            for start in range(0, count, BLOCK):
                by_z = _slope(z1, odd, start, weights, total, t1, g1, by_g1, BLOCK, P1, UNITS)
                first += tl.dot(tl.trans(tl.load(_tile(x, start, BLOCK, DP))), by_z, input_precision=PRECISION)
            store_matrix(by_w1, first, D, DP, P1)
            tl.debug_barrier()
            rates = corrections + 2 * tl.minimum(taken, last_correction)
            _, m, v = adam(w1, by_w1, m, v, finite, rates, b1, c1, b2, c2, decay, SIZE, FLAT)
            taken += 1
            tl.debug_barrier()
        epoch += 1

        # Validation with running statistics over the pairs of the lower triangle.
        for start in range(0, count, BLOCK):
            a = tl.load(_tile(x, start, BLOCK, DP))
            a1 = _flat(a, w1, r1, epsilon, D, DP, P1, UNITS, PRECISION)
            a2 = _flat(a1, w2, r2, epsilon, H1, P1, P2, UNITS, PRECISION)
            a3 = _flat(a2, w3, r3, epsilon, H2, P2, P3, UNITS, PRECISION)
            out = tl.dot(a3, load_matrix(w4, H3, P3, P4), input_precision=PRECISION)
            tl.store(_tile(psi, start, BLOCK, P4), out + load_vector(w4 + H3 * P4, P4)[None, :])
        tl.debug_barrier()
        loss = tl.full((), 0.0, tl.float32)
        for start in range(0, count, BLOCK):
            own = tl.load(_tile(psi, start, BLOCK, P4))
            own_target = tl.load(target + start + tl.arange(0, BLOCK))
            for other in range(0, start + BLOCK, BLOCK):
                _, error, chosen, apart = _residual(
                    psi, own, target, own_target, split, start, other, kind, POINTS, BLOCK, P4, PRECISION
                )
                loss += tl.sum(tl.sum(tl.where(chosen & (apart >= 0), error * error, 0.0), 1), 0)
        loss *= check_share
        better = finite & (loss < best)
        if better:
            cells = tl.arange(0, FLAT)
            tl.store(best_parameters + cells, tl.load(w1 + cells, mask=cells < SIZE), mask=cells < SIZE)
            units = tl.arange(0, FLAT_UNITS)
            now = tl.load(r1 + units, mask=units < 2 * UNITS, other=0.0)
            tl.store(best_running + units, now, mask=units < 2 * UNITS)
        tl.debug_barrier()
        best = tl.where(better, loss, best)
        waited = tl.where(better, 0, waited + 1)
        going = finite & (waited < patience) & (epoch < max_epochs)
    tl.store(epochs + run, epoch)
    tl.store(losses + run, best)
