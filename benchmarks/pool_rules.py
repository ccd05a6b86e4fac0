"""`eigen` and `gain` on a large pool beside bmdal_reg's LCMD on the same features: seconds, peak memory, growth with n.

    python benchmarks/pool_rules.py [--rows 1000000] [--features 128] [--batch 96]
        [--sizes 10000,100000,1000000,10000000] [--repeats 3]

Every rule runs in a process of its own, in single precision; memory is what the operating system reports, less that of
the process before it began; the median of some repeats counts, since memory that a machine hands out for the first time
is slow. The last lines fit seconds ∝ n^e, over all sizes and from each to the next. `gain` takes the features as
coordinates and 96 of the points as measured, like LCMD; the expected squared error is drawn at random.
"""

import numpy as np

from common import child, command, numbers

FRAME = """
import json, resource, sys, time
import torch
n, p, b = map(int, sys.argv[1:])
torch.manual_seed(0)
x = torch.randn(n, p)
{setup}
begin_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
{work}
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(seconds=seconds, more_gb=(peak - begin_kb) / 2**20, features_gb=x.numel() * 4 / 2**30)))
"""
EIGEN = FRAME.format(
    setup="""
from aicau import Omega, streams
from aicau.acquisition.base import Score, View
from aicau.batching import Eigen
omega = Omega(x[None])
allowed = torch.ones(1, n, dtype=torch.bool)
view = View(x[:, :2], allowed, ~allowed, streams.runs(0, 1))
score = Score(omega.diagonal(), omega)
""",
    work="chosen = Eigen().select(score, view, b).index",
)
GAIN = FRAME.format(
    setup="""
from aicau import streams
from aicau.acquisition.base import Score, View
from aicau.batching import Gain
measured = torch.zeros(1, n, dtype=torch.bool)
measured[0, :96] = True
view = View(x, ~measured, measured, streams.runs(0, 1))
score = Score(torch.rand(1, n), None)
""",
    work="chosen = Gain().select(score, view, b).index",
)
RULES = {"eigen": EIGEN, "gain": GAIN}
LCMD = FRAME.format(
    setup="""
import contextlib, io
import numpy as np
np.Inf = np.inf  # a name that bmdal_reg still uses
from bmdal_reg.bmdal.feature_data import TensorFeatureData
from bmdal_reg.bmdal.features import Features
from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
from bmdal_reg.bmdal.selection import LargestClusterMaxDistSelectionMethod
pool = Features(IdentityFeatureMap(n_features=p), TensorFeatureData(x))
train = Features(IdentityFeatureMap(n_features=p), TensorFeatureData(x[:96]))
""",
    work="""
with contextlib.redirect_stdout(io.StringIO()):
    chosen = LargestClusterMaxDistSelectionMethod(pool, train, sel_with_train=True, verbosity=0).select(b)
""",
)


def main(
    rows: int = 1_000_000,
    features: int = 128,
    batch: int = 96,
    sizes: str = "10000,100000,1000000,10000000",
    repeats: int = 3,
) -> None:
    def median(code: str, n: int) -> dict[str, float]:
        found = [child(code, n, features, batch) for _ in range(repeats)]
        return {name: float(np.median([one[name] for one in found])) for name in found[0]}

    theirs = median(LCMD, rows)
    print("LCMD ", theirs, flush=True)
    for name, code in RULES.items():
        ours = median(code, rows)
        print(name, ours, f"seconds / LCMD's: {ours['seconds'] / theirs['seconds']:.2f}", flush=True)
    counts = numbers(sizes)
    for name, code in RULES.items():
        seconds = [median(code, n)["seconds"] for n in counts]
        exponent = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
        steps = np.diff(np.log(seconds)) / np.diff(np.log(counts))
        words = f"from size to size {', '.join(f'{step:.2f}' for step in steps)}"
        print(f"exponent of {name} {exponent:.2f}, {words}: {dict(zip(counts, seconds, strict=True))}", flush=True)


if __name__ == "__main__":
    command(main)
