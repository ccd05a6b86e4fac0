"""Three classes on the grid of the toy, with labels that are wrong more often in some places than in others.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| c(x) | `label` | (n,) | the class that is right |
| ν(x) | `confusion` | (n,) | share of labels drawn at random |
| p(x) | `truth` | (n, 3) | (1 − ν)·e_c + ν/3 |
| z(x) | `noise` | (..., n) | standard normal; Φ(z) decides which label comes out |

`class1` has no wrong labels. `class2` has them independently, ever more to the right, and in a disc labels are pure
noise: there is nothing to learn there but that. In `class3` the z of one round are one field over x (a Gaussian copula,
as the noise of Type III): labels of one round are wrong together, as under one annotator or on one plate, while each
label by itself has the probabilities of `class2`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from aicau.core.task import Task
from aicau.problems.toy import Toy

CLASSES = 3
CENTRE, RADIUS, EDGE = (4.4, 2.0), 1.4, 0.4  # of the disc of pure noise, and over what distance it fades
WRONG = 0.2  # share of random labels at the right end with noise_scale 1


@dataclass(frozen=True)
class ClassToy(Toy):
    """The grid of the toy, with labels; `noise_scale` is that of the share of wrong ones."""

    name: str = "class2"
    task = Task("classification", CLASSES)

    @cached_property
    def label(self) -> Tensor:  # (n,)
        x = self.pool.x
        turn = 2 * math.pi / CLASSES * torch.arange(CLASSES, device=x.device)
        return (torch.sin(x[:, :1] + turn) + torch.cos(x[:, 1:] - turn)).argmax(-1)

    @cached_property
    def _outside(self) -> Tensor:  # (n,)
        """Distance to the disc of pure noise; 0 inside."""
        centre = torch.tensor(CENTRE, dtype=self.pool.x.dtype, device=self.pool.x.device)
        return (torch.linalg.vector_norm(self.pool.x - centre, dim=-1) - RADIUS).clamp_min(0)

    @cached_property
    def pure_noise(self) -> Tensor:  # (n,) bool
        """Where labels say nothing about the place."""
        return (self._outside == 0) & (self.name != "class1")

    @cached_property
    def confusion(self) -> Tensor:
        if self.name == "class1":
            return torch.zeros_like(self._outside)
        rising = (WRONG * self.noise_scale * self.pool.x[:, 0] / (2 * math.pi)).clamp_max(1)
        return torch.maximum(rising, torch.exp(-0.5 * (self._outside / EDGE) ** 2))

    @cached_property
    def truth(self) -> Tensor:  # (n, 3)
        right = torch.nn.functional.one_hot(self.label, CLASSES).double()
        return (1 - self.confusion)[:, None] * right + self.confusion[:, None] / CLASSES

    @cached_property
    def aleatoric(self) -> Tensor:  # (n,)
        """E D[Y‖EY], which for classes is the entropy of the label."""
        return torch.special.entr(self.truth).sum(-1)

    @cached_property
    def sigma(self) -> Tensor:  # (n,)
        """Of z: it is standard normal everywhere."""
        return torch.ones_like(self.confusion)

    @cached_property
    def _steps(self) -> Tensor:  # (n, 2)
        """Φ(z) below the first: the right label; below the second: the next one."""
        order = (self.label[:, None] + torch.arange(CLASSES, device=self.label.device)) % CLASSES
        return self.truth.gather(-1, order).cumsum(-1)[:, :-1]

    def respond(self, index: Tensor, drawn: Tensor) -> Tensor:
        wrong = (torch.special.ndtr(drawn)[..., None] >= self._steps[index]).sum(-1)
        return ((self.label[index] + wrong) % CLASSES).double()

    def known(self, count: int, keys: Tensor) -> Tensor:  # (runs,) -> (runs, n, 3)
        """Perfect information knows p: ten labels would tell it to within 0.15 only."""
        return self.truth.expand(*keys.shape, -1, -1)


def class1(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> ClassToy:
    """Labels are always right; a point is never measured twice."""
    return ClassToy("class1", grid, noise_scale, correlation_length)


def class2(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> ClassToy:
    """Labels are wrong independently, more often in some places."""
    return ClassToy("class2", grid, noise_scale, correlation_length)


def class3(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> ClassToy:
    """As `class2`, and the labels of one round are wrong together."""
    return ClassToy("class3", grid, noise_scale, correlation_length)
