"""A problem: a pool, the truth over it, and noise that is drawn apart from the truth."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import Pool
from aicau.core.runs import by_run
from aicau.core.streams import Purpose
from aicau.core.task import REGRESSION, Task


class Problem(ABC):
    """Ground truth apart from noise, in float64. Subclass it for a simulator of your own.

    Give `name`, `pool`, `truth` and `noise`; set `capacity` where a point can be measured only so often, `task` where
    labels are measured (then `truth` are probabilities and `respond` makes labels of noise).

    Examples
    --------
    >>> import torch
    >>> from aicau import Pool, Problem, simulate
    >>> class Line(Problem):
    ...     name, pool = "line", Pool(torch.linspace(0, 1, 40)[:, None])
    ...     truth = pool.x[:, 0] ** 2
    ...     def noise(self, keys):
    ...         return torch.zeros(*keys.shape, self.pool.n, dtype=torch.double)
    >>> simulate(Line(), ["random", "lc"], 5, 2, 1, 2, seed=0).mse.shape
    (2, 2, 2)
    """

    name: str
    pool: Pool
    task: Task = REGRESSION
    repeats_share_noise: bool = False  # True: the same point twice in one round gives one value twice

    @property
    @abstractmethod
    def truth(self) -> Tensor:  # (n,), or (n, c) probabilities of classes
        """μ_Y over the pool."""

    @property
    def aleatoric(self) -> Tensor:  # (n,)
        """σ²_Y over the pool; zero unless a problem knows better."""
        return torch.zeros_like(self.truth)

    @property
    def capacity(self) -> Tensor:  # (n,) int64
        """How often each point can be measured; without noise once, with noise as often as one likes."""
        often = 1 if bool((self.aleatoric == 0).all()) else torch.iinfo(torch.int64).max
        return torch.full((self.pool.n,), often)

    @abstractmethod
    def noise(self, keys: Tensor) -> Tensor:  # (..., c) -> (..., c, n)
        """W over the whole pool, drawn jointly: one realisation per key.

        Rounding may depend on c, never on the dimensions before it (those are runs).
        """

    def measure(
        self,
        index: Tensor,  # (..., m) pool indices queried together
        earlier: Tensor,  # (..., m) how often each had been measured before, in this run
        keys: Tensor,  # (...) one key per run
        round: int,
    ) -> Tensor:  # (..., m)
        """One measurement for each entry of `index`.

        The noise is a function of (run, round, x, repeat within the round): two strategies that ask for the same point
        in the same round of the same run see the same value, which makes their comparison paired.
        """
        keys = streams.fold(streams.fold(keys, Purpose.NOISE), round)
        repeat = torch.zeros_like(index) if self.repeats_share_noise else repeat_number(index)
        fields = [self.noise(streams.fold(keys, j)[..., None]) for j in range(int(repeat.max()) + 1)]
        flat = torch.cat(fields, dim=-2).flatten(-2).expand(*index.shape[:-1], -1)
        return self.respond(index, flat.gather(-1, repeat * self.pool.n + index))

    def respond(self, index: Tensor, drawn: Tensor) -> Tensor:  # (..., m) twice -> (..., m)
        """What is measured at `index` when the noise there is `drawn`."""
        return self.truth[index] + drawn

    def draw(
        self,
        index: Tensor,  # (..., m)
        history: Observations,  # (..., l) what was measured before, in this run
        keys: Tensor,
        round: int,
    ) -> tuple[Tensor, Tensor]:  # values (..., m), batches (..., m)
        """What `measure` gives after that history, and the batch (plate, day) of each: here the round."""
        earlier = history.counts(self.pool.n).gather(-1, index)
        return self.measure(index, earlier, keys, round), torch.full_like(index, round)

    def to(self, device: torch.device) -> "Problem":
        """The same problem with its tensors on `device`; one that lives on the CPU only stays there."""
        return self

    def realisations(self, count: int, keys: Tensor) -> Tensor:  # (...) -> (..., count, n)
        """Whole realisations of Y, as perfect information may see them."""
        drawn = self.noise(streams.fold(keys[..., None], torch.arange(count, device=keys.device)))
        return self.respond(torch.arange(self.pool.n, device=drawn.device), drawn)

    def known(self, count: int, keys: Tensor) -> Tensor:  # (runs,) -> (runs, n)
        """What perfect information sees of μ_Y: the truth without noise, else the mean of `count` realisations."""
        if not bool((self.aleatoric > 0).any()):
            return self.truth.expand(*keys.shape, -1)
        return by_run(lambda some: self.realisations(count, some).mean(-2), keys)


def noise_field(keys: Tensor, sigma: Tensor, root: Tensor | None = None) -> Tensor:  # (..., c), (n,) -> (..., c, n)
    """W = σ·ε, ε independent between points or ~ N(0, LLᵀ) with the Cholesky factor L (n, n) of their correlation."""
    white = streams.normal(keys, sigma.shape[0])
    if root is None:
        return sigma * white
    if white.is_cuda:
        return sigma * (white @ root.mT)
    # One product per run: its rounding does not depend on how many runs are computed together.
    runs = [block @ root.mT for block in white.reshape(-1, *white.shape[-2:])]
    return sigma * torch.stack(runs).reshape(white.shape)


def correlation_root(x: Tensor, length: float) -> Tensor:  # (n, d) -> (n, n)
    """Cholesky factor of ρ(x, x*) = exp(−|x − x*|/length)."""
    if x.shape[0] > 10_000:
        raise InputError(f"noise correlated over {x.shape[0]} points needs too much memory; use at most 10,000 points")
    rho = torch.exp(-torch.cdist(x, x) / length)
    return torch.linalg.cholesky(rho + 1e-10 * torch.eye(x.shape[0], dtype=x.dtype, device=x.device))


def repeat_number(index: Tensor) -> Tensor:  # (..., m) -> (..., m)
    """0 for the first time a point stands in a row, 1 for the second, and so on."""
    same = index[..., :, None] == index[..., None, :]
    return torch.tril(same, diagonal=-1).sum(-1)
