"""Is the optimum of the paper's process as good as scikit-learn's with five restarts, under noise?

    python benchmarks/likelihood.py [--runs 3] [--points 10,20,50,100,200] [--types type2,type3]

Log marginal likelihood of the residuals of the paper's ensemble (inputs [x, μ_F, σ²_F], normalised target). `lost` is
the better of both minus ours: at most 0.5 is asked for.
"""

import math
import warnings

import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from aicau import gp
from common import command, header, numbers, row
from q_learning import evidence


def main(runs: int = 3, points: str = "10,20,50,100,200", types: str = "type2,type3") -> None:
    warnings.filterwarnings("ignore")
    worst = 0.0
    header("Type", "points", "ours", "scikit-learn, 5 restarts", "lost")
    for kind in types.split(","):
        for rows in numbers(points):
            known, _ = evidence(kind, rows, runs, torch.device("cpu"))
            seen, residual = known.residuals()
            side = known.side_information().double()
            x = side.gather(1, seen.index[..., None].expand(-1, -1, side.shape[-1]))
            for run in range(runs):
                y = (residual[run] - residual[run].mean()) / residual[run].std(correction=0)
                fitted = gp.fit(x[run : run + 1], y[None], seen.valid[run : run + 1])
                every = torch.ones_like(y[None], dtype=torch.bool)
                given = gp.Rows(x[run : run + 1], y[None], every, torch.full_like(y[None], 1e-6))
                value = float(gp.negative_log_likelihood(fitted.theta, given)[0])
                ours = -value - 0.5 * rows * math.log(2 * math.pi)
                kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * x.shape[-1], (1e-2, 1e2))
                model = GaussianProcessRegressor(kernel, alpha=1e-6, n_restarts_optimizer=5, random_state=run)
                theirs = float(model.fit(x[run].numpy(), y.numpy()).log_marginal_likelihood_value_)
                worst = max(worst, theirs - ours)
                row(kind, rows, f"{ours:.2f}", f"{theirs:.2f}", f"{max(theirs - ours, 0):.2f}")
    print(f"\nlargest loss: {worst:.2f}")


if __name__ == "__main__":
    command(main)
