"""The part of a pool that `gain` looks at closely, found in one pass over the whole of it.

| what is bounded | at most | chosen |
|---|---|---|
| candidates that the expected error is summed over | `SAMPLED` | evenly, by their weights (`draw`) |
| candidates that compete | `LISTED` | the largest gains by few landmarks (`Screen`) |

Pools below both are looked at as a whole. The pass is a function of a portion that gives a small list (`best`); lists
are joined as they come, here or on another machine. Portions begin at the same candidates however the pool is read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, among
from aicau.batching.base import best, take_best
from aicau.batching.work import Basis, Learner, Work, evenly, price_of, sum_of
from aicau.core.engine import HERE, Engine
from aicau.core.pool import Frame
from aicau.core.runs import PORTION, carried, moved, over, portion, threads

SAMPLED = 16_384
LISTED = 16_384
SKETCHED = 128  # landmarks of `Screen`
NETWORKS = 3  # that it sees: half of its work is their gradients
STAGES = 16  # of a batch that are looked at
STEPS = 32  # points of that batch
SHARD = 64  # portions that go to another machine together
FAINT = 1e-4  # of the largest eigenvalue of a form: what is smaller is left out
RIDGE = 1e-5  # of noise and bias as sums of features

Looks = Callable[[Tensor | None], tuple[Score, View]]  # what is known of some candidates; None: of all


@dataclass(frozen=True)
class Drawn:
    """Candidates drawn with replacement in proportion to a weight."""

    hits: Tensor  # (s,) ascending
    stands: Tensor  # (s,) how many candidates each hit stands for

    def among(self, known: Tensor, more: Tensor | None = None) -> tuple[Tensor, Tensor]:  # (1, n), (k,) -> (r,) twice
        """These and what is known (and more), ascending; and how many candidates each stands for."""
        parts = [self.hits, known[0].nonzero()[:, 0]] + ([] if more is None else [more])
        index = torch.cat(parts).unique()
        place = torch.searchsorted(index, self.hits)
        return index, torch.zeros_like(index, dtype=self.stands.dtype).index_add(0, place, self.stands)


def draw(n: int, weight: Tensor | None, device: torch.device) -> Drawn:  # (1, n)
    """At most `SAMPLED` of n candidates, evenly spaced along the sum of their weights."""
    steps = (torch.arange(SAMPLED, dtype=torch.double, device=device) + 0.5) / SAMPLED
    if weight is None or not bool((weight > 0).any()):
        return Drawn((steps * n).long(), torch.full_like(steps, n / SAMPLED))
    along = weight[0].double().cumsum(0)
    hits = torch.searchsorted(along, steps * along[-1]).clamp_max(n - 1)
    return Drawn(hits, along[-1] / SAMPLED / weight[0][hits].double())


@dataclass(frozen=True)
class Part:
    """Some candidates that follow each other."""

    start: int  # number of the first
    x: Tensor  # (s, d) coordinates; features where the pass has a frame
    points: Tensor | None  # (s, d) features
    open: Tensor  # (s,) whether each may be chosen
    chances: tuple[Tensor | None, ...]  # (s,) for every target
    price: Tensor | None  # (s,)


@dataclass(frozen=True)
class Pass:
    """Gains of candidates by the screens: what is done with every one of them, here or on another machine."""

    screens: "Sequence[Screen]"  # of every target
    each: int  # candidates that a list holds of a stage
    frame: Frame | None = None

    def gains(self, part: Part) -> tuple[Tensor, Tensor]:  # (k,), (stages, k)
        """Candidates of a portion that may be chosen, and their gains."""
        at, found = part.x if self.frame is None else self.frame.coordinates(part.x), []
        for screen, chance in zip(self.screens, part.chances, strict=True):
            gain = screen.gains(at, part.points)
            found.append(gain if chance is None else gain * chance.to(gain))
        gain = sum_of(found) if part.price is None else sum_of(found) / part.price.to(at)
        kept = part.open.nonzero()[:, 0]
        return part.start + kept, gain[:, kept]

    def __call__(self, parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
        """The short list of some portions."""
        return best(map(self.gains, parts), self.each)


class Screen:
    """Gains of any points by few landmarks: they tell where in a large pool to look closely.

    Before the first choice other points have the largest gains than later: a batch chosen from some points shows where.
    With k the covariances of a point with the landmarks, everything but the variance of the point is a square or a
    product of entries of Wk, W a matrix: one product for each portion, in single precision. The forms I − A and AMA
    are sums of squares. Noise and bias are taken for sums of features, fitted where they are known.
    """

    def __init__(self, score: Score, view: View, m: int) -> None:
        base = Basis(score, view, SKETCHED, NETWORKS)
        room = (view.allowed.long() if view.room is None else view.room)[0]
        index = (room > 0).nonzero()[:, 0]
        index = index[evenly(len(index), PORTION, view.x)]
        work, left, columns, numbers = Work(base, index), room[index], [], []
        phi, noise, inside = work.phi.double(), work.noise.double(), base.inside
        eye = torch.eye(len(inside), dtype=inside.dtype, device=inside.device)
        fit = torch.linalg.solve(phi.mT @ phi + RIDGE * len(phi) * eye, phi.mT)
        learner = None
        if base.delta is not None:  # the same of features: D = ΦB
            bias = (fit @ base.delta.factor[0, index].double()).mT.contiguous()
            parts = (bias.clone(), (inside @ base.cross).mT.contiguous(), base.cross.mT.contiguous())
            learner = Learner(*parts, base.delta.weights[0].double())
        for _ in range(min(m, STEPS, int(left.sum()))):
            place, _ = take_best(work.now(), left > 0)
            left[place] -= 1
            random = None if learner is None else (work.noise + work.apart)[place].double()
            found = work.measure(place)
            move = found.own / found.size
            after = (found.far - move * found.square[:, None]) / found.size
            own, own_numbers = [move, *after], [found.size, *found.square]
            if learner is not None and random is not None:
                d = learner.parts[0][: learner.used] @ phi[place]
                more = learner.step(d, found, move, after[1], random)
                own, own_numbers = own + list(more[:2]), own_numbers + list(more[2:])
            columns.append(torch.stack(own))
            numbers.append(torch.stack(own_numbers))
        self.numbers = torch.stack(numbers, 1).float()[..., None]
        self.even, self.least, self.most = float(noise.mean()), float(noise.min()), float(noise.max())
        axes, self.forms = _axes(eye - inside, inside @ base.moments[0] @ inside)
        steps = torch.stack(columns, -1)
        blocks, self.signs = [axes, steps[0], steps[1], (fit @ (noise - self.even))[:, None]], None
        if base.delta is not None:
            self.signs = base.delta.weights[0].float()
            plain, weights = _axes(inside @ base.moments[1] @ inside)
            random = (fit @ (base.noise + base.apart)[index].double())[:, None]
            blocks += [plain * weights[0].double().sqrt(), *steps[2:], random]
            blocks += [bias.mT, inside @ base.cross]
        self.trust = base.trust
        self.widths = [block.shape[-1] for block in blocks]
        self.covariance = base.features.covariance
        self.landmarks = base.features.landmarks[0].float(), base.features.landmarks[1]
        self.matrix = (base.features.root.double() @ torch.cat(blocks, -1)).mT.float().contiguous()  # W
        self.stages: list[int] = evenly(len(numbers), STAGES, view.x).tolist()

    def gains(self, x: Tensor, points: Tensor | None) -> Tensor:  # (s, d) twice -> (stages, s)
        """Of points by coordinates and by what networks see."""
        scaled, layers = self.covariance.of(x, points)
        at = scaled.float(), layers
        parts = self.matrix @ self.covariance.between(at, self.landmarks).mT
        squares, move, after, local, *bias = parts.split(self.widths)
        size, square, plain, *others = self.numbers
        # φᵀAφ + ρ + σ² = k(x, x) − φᵀ(I − A)φ + σ², and φᵀAMAφ
        lost, likely = self.forms @ squares.square_()
        noise = (local[0] + self.even).clamp_(self.least, self.most)
        now = [self.covariance.variance(at) + noise - lost, likely]
        twice = move**2
        falls = [size * twice, 2 * size * move * after + square * twice]  # what each choice of the batch takes
        if self.signs is not None:
            axes, after, along, back, random, factor, moved = bias
            product, (around, beside) = move * after, others
            now += [axes.square_().sum(0), self.signs @ (moved * factor)]
            now += [self.signs @ factor.square_() + random[0].clamp_min_(0)]
            falls += [
                2 * size * product + plain * twice,
                move * back + after * along - around * product - beside * twice,
            ]
            falls += [2 * move * along - around * twice]
        found = []
        for step, next_step in zip(self.stages, [*self.stages[1:], None], strict=True):
            below, gain, *more = now
            below = below.clamp_min(self.least)
            if more:
                gain = (1 - self.trust) * gain + self.trust * (2 * more[1] - more[0] * more[2] / below)
            found.append((gain / below).clamp_min_(0))
            now = [part - fall[step:next_step].sum(0) for part, fall in zip(now, falls, strict=True)]
        return torch.stack(found)


def _axes(*forms: Tensor) -> tuple[Tensor, Tensor]:  # (p, p) once or twice -> (p, r), (forms, r)
    """Columns C and weights w of one or two forms C diag(w) Cᵀ, without directions that hardly count."""
    sizes = torch.stack([form.diagonal().sum() for form in forms]).clamp_min(torch.finfo(forms[0].dtype).tiny)
    values, vectors = torch.linalg.eigh(sum(form / size for form, size in zip(forms, sizes, strict=True)))
    kept = values > FAINT * values[-1]
    root, inverse = vectors[:, kept] * values[kept].sqrt(), vectors[:, kept] / values[kept].sqrt()
    first, turn = torch.linalg.eigh(inverse.mT @ forms[0] @ inverse / sizes[0])  # the other is what is left to 1
    weights = torch.stack([first, 1 - first][: len(forms)]).clamp(0, 1) * sizes[:, None]
    return root @ turn, weights.float()


def narrowed(
    looks: Sequence[Looks],  # one for every target
    m: int,
    room: Tensor,  # (1, n)
    known: Tensor,  # (1, n)
    x: Any,  # (n, d) coordinates; features where there is a frame
    points: Tensor | None,  # (n, d) features; None: as x
    chances: Sequence[Tensor | None],  # (1, n) for every target
    weights: Sequence[Tensor | None],  # (1, n) for every target
    cost: Tensor | None,  # (1, n)
    budget: float,
    frame: Frame | None = None,
    engine: Engine = HERE,
) -> tuple[Tensor | None, list[tuple[Score, View]]]:
    """Candidates that are looked at (None: all), ascending, and what is known of them; only what is listed has room."""
    n, listed, most = len(x), (room[0] > 0).nonzero()[:, 0], max(LISTED, STAGES * m)
    sampled = n > SAMPLED
    if not sampled and len(listed) <= most:
        return None, [look(None) for look in looks]
    some = [weight for weight in weights if weight is not None]
    drawn = draw(n, sum_of(some) if len(some) == len(looks) else None, room.device)

    def seen(*more: Tensor) -> tuple[Tensor | None, list[tuple[Score, View]]]:
        if not sampled:
            return None, [look(None) for look in looks]
        index, stands = drawn.among(known, *more)
        pairs = [look(index) for look in looks]
        return index, [(score, replace(view, stands=stands[None].to(view.x))) for score, view in pairs]

    if len(listed) > most:
        closed = sampled and not bool((room[0, drawn.hits] > 0).any())  # what counts is known: a screen needs others
        screens = [Screen(*pair, m) for pair in seen(*[listed[evenly(len(listed), PORTION, listed)]] * closed)[1]]
        price, device = None if cost is None else price_of(cost[0], budget, m), screens[0].matrix.device
        work = Pass(screens, most // len(screens[0].stages), moved(frame, device))

        def portions() -> Iterator[Part]:
            start = 0
            for some in x.split(portion(device)):
                at = slice(start, start + len(some))
                own = tuple(None if chance is None else chance[0, at] for chance in chances)
                features = some if points is None else points[at]
                yield Part(start, some, features, room[0, at] > 0, own, None if price is None else price[at])
                start = at.stop

        parts = portions()
        if engine.here:
            with threads(1):  # lists are joined beside the workers: a step on all cores would wait for them
                found = best(over(work.gains, carried(parts, device), device), work.each)
        else:
            found = best(engine.over(work, iter(lambda: list(islice(parts, SHARD)), [])), work.each)
        listed = found[0].to(room.device)
    index, pairs = seen(listed)
    left = torch.zeros_like(room)
    left[:, listed] = room[:, listed]
    left = (left if index is None else left[:, index]).to(pairs[0][1].allowed.device)
    return index, [(score, replace(view, allowed=left > 0, room=left)) for score, view in pairs]


def of_pool(pairs: Sequence[tuple[Score, View]], m: int) -> tuple[Tensor | None, Sequence[tuple[Score, View]]]:
    """The same where all is computed already; a part that was looked for before stays as it is."""
    view = pairs[0][1]
    if view.stands is not None:
        return None, pairs

    def look(pair: tuple[Score, View]) -> Looks:
        return lambda index: pair if index is None else among(*pair, index)

    room = view.allowed.long() if view.room is None else view.room
    chances, weights = ([getattr(v, name) for _, v in pairs] for name in ("chance", "weight"))
    points = view.x if view.points is None else view.points
    own = (room, view.measured, view.x, points, chances, weights, view.cost, view.budget)
    return narrowed([look(pair) for pair in pairs], m, *own)
