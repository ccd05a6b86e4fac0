"""A fitted process of many measurements: some of them for the whole space, and all for their neighbourhood.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| z | `basis` | (m, p) | some rows, evenly spaced |
| φ(x) | `phi` | (m, n) | L⁻¹ k(z, x) with L Lᵀ = K_zz; Q = φᵀφ |
| Λ | `Block.root` | (b, b) | K − Q and the noise within a block of neighbouring rows; 0 between blocks |

K becomes Q + Λ, the partially independent conditional of Snelson & Ghahramani (2007): a candidate is predicted by z and
by the block that it lies in. Cost is linear in the rows, and that of a candidate does not depend on their number. With
one block, or with all rows in z, it is the process itself. Figures are in docs/scale.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.gp.likelihood import Rows
from aicau.gp.posterior import Posterior, Solved

EXACT = 1500  # rows up to which every row sees every other
CARRIERS, BLOCK = 256, 1024  # rows in z; most rows of a block
JITTER = 1e-6  # on the diagonal of K_zz
PORTION = 4096  # candidates at a time


@dataclass(frozen=True)
class Block:
    """Rows of one neighbourhood."""

    x: Tensor  # (b, p)
    root: Tensor  # (b, b) of Λ
    half: Tensor  # (b, m) root⁻¹ Φᵀ
    weights: Tensor  # (b,) of the rows in the mean
    centre: Tensor  # (m,) of z in the mean


@dataclass(frozen=True)
class Split:
    """Points with at most `value` of a feature on the first side; a side is a further split or a block's number."""

    feature: int
    value: Tensor  # ()
    sides: tuple["Split | int", "Split | int"]


def placed(tree: Split | int, x: Tensor) -> Tensor:  # (n, p) -> (n,)
    """The block of each point."""
    found = torch.zeros(len(x), dtype=torch.long, device=x.device)
    if isinstance(tree, int):
        return found + tree
    low = x[:, tree.feature] <= tree.value
    for side, here in zip(tree.sides, (low, ~low), strict=True):
        found[here] = placed(side, x[here])
    return found


@dataclass(frozen=True)
class Many(Solved):
    """Of one run, without batches."""

    basis: Tensor  # (m, p)
    root: Tensor  # (m, m) L
    total: Tensor  # (m, m) of I + Φ Λ⁻¹ Φᵀ
    tree: Split | int
    blocks: list[Block]

    @classmethod
    def of(cls, theta: Tensor, rows: Rows, shift: Tensor, scale: Tensor) -> "Many":
        """With parameters that were found before."""
        x, noise = rows.x[0], rows.noise(theta)[0]
        basis = rows.thin(CARRIERS).x[0]
        one = torch.eye(len(basis)).to(x)
        root = torch.linalg.cholesky(rows.prior(theta, basis[None], basis[None])[0] + JITTER * one)
        leaves: list[Tensor] = []
        tree = split(x / theta[0, 1 : 1 + x.shape[-1]].exp(), torch.arange(len(x), device=x.device), leaves)
        total, target, halves = one.clone(), torch.zeros_like(one[0]), []
        for at in leaves:
            phi = torch.linalg.solve_triangular(root, rows.prior(theta, basis[None], x[None, at])[0], upper=False)
            own = rows.prior(theta, x[None, at], x[None, at])[0].addmm_(phi.mT, phi, alpha=-1)
            own.diagonal().add_(noise[at])
            below = torch.linalg.cholesky(own)
            seen = torch.linalg.solve_triangular(below, torch.cat([phi.mT, rows.y[0, at, None]], 1), upper=False)
            half, y = seen[:, :-1].contiguous(), seen[:, -1:]
            total.addmm_(half.mT, half)
            target += (half.mT @ y)[:, 0]
            halves.append((below, half, y))
        total = torch.linalg.cholesky(total)
        mean = torch.cholesky_solve(target[:, None], total)
        blocks = []
        for at, (below, half, y) in zip(leaves, halves, strict=True):
            left = y - half @ mean
            weights = torch.linalg.solve_triangular(below.mT, left, upper=True)
            centre = torch.linalg.solve_triangular(root.mT, mean - half.mT @ left, upper=True)
            blocks.append(Block(x[at], below, half, weights[:, 0], centre[:, 0]))
        return cls(theta, rows, shift, scale, basis, root, total, tree, blocks)

    def _normalised(self, at: Tensor, spread: bool) -> tuple[Tensor, Tensor]:
        found = [self._some(some.to(self.theta), spread) for some in at[0].split(PORTION)]
        means, variances = zip(*found, strict=True)
        return torch.cat(means)[None], torch.cat(variances)[None]

    def _some(self, at: Tensor, spread: bool) -> tuple[Tensor, Tensor]:  # (n, p) -> (n,) twice
        cross = self.rows.prior(self.theta, self.basis[None], at[None])[0]  # (m, n)
        phi = torch.linalg.solve_triangular(self.root, cross, upper=False) if spread else cross
        mean, variance = torch.empty_like(cross[0]), torch.zeros_like(cross[0])
        if spread:
            variance = self.rows.prior_at(self.theta, at[None])[0] - (phi**2).sum(0)
        place = placed(self.tree, at / self.lengths())
        for name in place.unique().tolist():
            block, here = self.blocks[name], (place == name).nonzero()[:, 0]
            near = self.rows.prior(self.theta, block.x[None], at[None, here])[0]
            mean[here] = block.weights @ near + block.centre @ cross[:, here]
            if spread:
                own = phi[:, here]
                half = torch.linalg.solve_triangular(block.root, near, upper=False) - block.half @ own
                left = torch.linalg.solve_triangular(self.total, own - block.half.mT @ half, upper=False)
                variance[here] += (left**2).sum(0) - (half**2).sum(0)
        return mean, variance

    def left_out_groups(self, group: Tensor) -> tuple[Tensor, Tensor]:  # (l,) -> (l,), (l,)
        """Rows predicted without their whole group: error (value minus mean), and the variance of a value."""
        error, variance = torch.empty_like(self.rows.y[0]), self.rows.noise(self.theta)[0] * self.scale**2
        for name in group.unique():
            out, kept = ((group == name) == one for one in (True, False))
            others = fitted(self.theta, self.rows.part(kept), self.shift, self.scale)
            mean, spread = others.both(self.rows.x[:, out])
            error[out] = (self.rows.y[:, out] * self.scale + self.shift - mean)[0]
            variance[out] += spread[0]
        return error, variance


def fitted(theta: Tensor, rows: Rows, shift: Tensor, scale: Tensor) -> Posterior | Many:
    """The process of one run with parameters that were found before, whatever the number of its rows."""
    return (Posterior if rows.y.shape[-1] <= EXACT else Many).of(theta, rows, shift, scale)


def split(x: Tensor, at: Tensor, leaves: list[Tensor]) -> Split | int:  # (l, p) in units of lengths, (k,)
    """Halves of the rows `at` by the feature that varies most among them, until none has more than `BLOCK`."""
    here = x[at]
    feature = int(here.var(0, correction=0).argmax())
    values, count = here[:, feature].unique(return_counts=True)
    if len(at) <= BLOCK or len(values) == 1:  # of more rows that are all alike, `BLOCK` are enough
        leaves.append(at[:BLOCK])
        return len(leaves) - 1
    value = values[(count.cumsum(0)[:-1] - len(at) / 2).abs().argmin()]
    low = here[:, feature] <= value
    return Split(feature, value, (split(x, at[low], leaves), split(x, at[~low], leaves)))
