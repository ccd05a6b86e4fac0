"""A pool of 10⁸ × 8 candidates on one GPU: seconds of each stage, and what share of the floor that is.

    python benchmarks/gpu_pool.py [--rows 100000000] [--features 8] [--measured 150] [--device cuda]

Candidates are made on the device in portions. Stages: what 5 networks predict, Ω = Σ_F + δδᵀ with an `eigen` batch,
and the whole default batch after some measurements. The floor of a stage is the larger of bytes over bandwidth and
operations over arithmetic, each measured here by a copy and by a product of matrices in single precision. First the
batches of a processor and of the device are compared on 10⁵ candidates. It runs on a processor, too, with few rows.
"""

import itertools
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer

from aicau import MLP, Observations, Round, Score, Strategy, View, streams
from aicau.batching import Eigen, shortlist
from aicau.core import decomposition
from aicau.core.runs import moved, portion
from aicau.prediction import State
from aicau.proposal import Look, propose
from common import command

BATCH = 96


def times(work: Callable, device: torch.device, repeats: int) -> tuple[list[float], object]:
    """Seconds of each call, and what the last one gave."""
    seconds = []
    for _ in range(repeats):
        wait(device)
        begin = time.perf_counter()
        found = work()
        wait(device)
        seconds.append(time.perf_counter() - begin)
    return seconds, found


def timed(name: str, work: Callable, device: torch.device, repeats: int = 3, floor: float | None = None) -> object:
    """Print the best of some times, first call apart, and the share of the floor."""
    seconds, found = times(work, device, repeats + 1)
    best = min(seconds[1:] or seconds)
    share = "" if floor is None else f", {floor / best:.0%} of the floor's speed ({floor:.3f} s)"
    peak = f", peak {torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB" if device.type == "cuda" else ""
    print(f"{name}: {best:.3f} s (first {seconds[0]:.2f}){share}{peak}", flush=True)
    return found


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def speeds(device: torch.device) -> tuple[float, float]:
    """Bytes and operations in a second."""
    size = 2**28 if device.type == "cuda" else 2**24
    source, target = torch.rand(size, device=device), torch.empty(size, device=device)
    side = 8192 if device.type == "cuda" else 1024
    a = torch.rand(side, side, device=device)
    found = [min(times(work, device, 4)[0][1:]) for work in (lambda: target.copy_(source), lambda: a @ a)]
    return 8 * size / found[0], 2 * side**3 / found[1]


def pool(n: int, d: int, device: torch.device) -> torch.Tensor:
    """Uniform features, made where they are used."""
    x = torch.empty(n, d, device=device)
    step = portion(device)
    for place, start in enumerate(range(0, n, step)):
        some = x[start : start + step]
        some.copy_(streams.uniform(streams.fold(streams.root(1, device), place), *some.shape))
    return x


def truth(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]


def fitted(x: torch.Tensor, measured: int) -> tuple[Round, State]:
    """The round after some measurements, trained on the processor, and carried to the device of x."""
    index = torch.linspace(0, len(x) - 1, measured, dtype=torch.double).long()
    rows = x[index.to(x.device)].cpu()
    noise = 0.1 * streams.normal(streams.runs(2, 1), measured)
    seen = Observations(index[None], truth(rows)[None].double() + noise, torch.zeros(measured, dtype=torch.long))
    how, here = Round(MLP()), torch.arange(measured)[None]
    few = Observations(here, seen.y, seen.round)
    state = how.fit(rows, few, streams.runs(0, 1))
    ensemble = moved(state.fitted, x.device)
    predictions = torch.cat([ensemble.predict(part) for part in x.split(100_000)], 2)
    seen = moved(seen, x.device)
    seen = Observations(seen.index, (seen.y - state.shift.to(x.device)) / state.scale.to(x.device), seen.round)
    units = [moved(part, x.device) for part in (state.keys, state.shift, state.scale, state.shared)]
    return how, State(state.task, x, seen, ensemble, predictions, *units)


def batch(how: Round, state: State, m: int, device: torch.device | None = None) -> list[int]:
    strategy = Strategy.parse("default")
    known = state.observations.counts(len(state.x)) > 0
    state.memo.clear()  # the process of the bias is fitted each time
    return propose(strategy, [Look(how, state)], m, (~known).long(), known, device=device).selection.index[0].tolist()


def main(
    rows: int = 100_000_000,
    features: int = 8,
    measured: int = 150,
    place: Annotated[str, typer.Option("--device")] = "cuda" if torch.cuda.is_available() else "cpu",
) -> None:
    device, n, d = torch.device(place), rows, features
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
    bandwidth, arithmetic = speeds(device)
    print(f"{name}: {bandwidth / 1e12:.2f} TB/s, {arithmetic / 1e12:.1f} TFLOP/s; {n:,} x {d}")

    small = pool(min(n, 100_000), d, device)
    how, state = fitted(small, measured)
    ours, theirs = batch(how, state, BATCH), batch(how, moved(state, torch.device("cpu")), BATCH)
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), BATCH)
    print(f"{len(small):,} candidates: first {same} of {BATCH} points the same as on a processor, "
          f"{len(set(ours) & set(theirs))} in common")  # fmt: skip
    travelled = batch(how, moved(state, torch.device("cpu")), BATCH, device)
    equal = sum(a == b for a, b in zip(travelled, ours, strict=True))
    print(f"pool on the processor, batch on the device: {equal} at the same places")

    x = timed("candidates made", lambda: pool(n, d, device), device, 0)
    how, state = fitted(x, measured)
    sizes = (d, *state.fitted.settings.hidden, 1)
    members = state.fitted.parameters.shape[-2]
    weights = members * sum(2 * (i + 1) * o for i, o in itertools.pairwise(sizes))
    forward = lambda: torch.cat([state.fitted.predict(part) for part in x.split(100_000)], 2)  # noqa: E731
    floor = max(n * (4 * d + 4 * members) / bandwidth, n * weights / arithmetic)
    timed("predictions of 5 members", forward, device, floor=floor)

    allowed = torch.ones(1, n, dtype=torch.bool, device=device)
    view = View(x, allowed, ~allowed, streams.runs(0, 1, device))

    def eigen() -> list[int]:
        mean = decomposition.mean(state.predictions)
        omega = decomposition.covariance(state.predictions) + decomposition.cobias(mean - mean.mean())
        score = Score(mean, omega)
        return Eigen().select(score, view, BATCH).index[0].tolist()

    columns = members + 1
    timed("Ω and an eigen batch", eigen, device, floor=n * (4 * members + 3 * 4 * columns) / bandwidth)
    width = sum(i + 1 + o for i, o in itertools.pairwise(sizes)) * members
    work = 2 * shortlist.SKETCHED * (width + 3 * shortlist.SKETCHED + 2 * BATCH) + 3 * weights
    floor = max(n * 4 * d / bandwidth, n * work / arithmetic)
    timed(f"default batch of {BATCH} after {measured} measurements", lambda: batch(how, state, BATCH), device,
          repeats=2, floor=floor)  # fmt: skip


if __name__ == "__main__":
    command(main)
