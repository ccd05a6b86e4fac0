"""Batch methods of bmdal_reg (Holzmüller et al. 2023, arXiv 2203.09410), through `select_batch`.

Each method is set as its authors set it, on two sources of features:

- `grad`: gradients of the networks of F_k, sketched to 512 (see `gradients`). Methods built on distances (LCMD,
  Core-Set, BADGE) run in mode TP on the plain kernel: the default of `select_batch`, and what bmdal_reg's
  `run_evaluation.py` selects for SiLU networks. For ReLU networks it selects mode P on transformed kernels for Core-Set
  and BADGE; on the toy (Type II, from 10 and from 100 points, 6 to 8 runs) that was worse in three of four cases and in
  the fourth within the spread. BatchBALD and BAIT (forward) run in mode P on the kernel conditioned on the training
  points, as in both lists, with σ² = 10⁻⁶ as in its `run_experiments.py`. ACS-FW is listed with the transform
  `acs-rf-hyper`, whose licence is non-commercial: here it uses `acs-rf`, which its experiments also contain.
- `sigma`: centred predictions of the members, whose linear kernel is Σ_F. The members were trained, so Σ_F already is
  the covariance after the measurements, and nothing is conditioned on the training points again. Kirsch (2023, arXiv
  2302.08981) runs the same methods on predictions in this way; the transform `scale` makes σ² free of units.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from aicau.acquisition import View
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.streams import Purpose
from aicau.ensembles.mlp import FittedMLP
from bench.peers.base import Peer, measured_rows, require
from bench.peers.gradients import sketch

SKETCH = 512
SIGMA = 1e-3  # standard deviation of the noise in units of the scaled kernel

Transform = tuple[str, tuple[Any, ...]]
POSTERIOR: Transform = ("train", (SIGMA, None))  # scale the kernel to 1 on the training points, then condition on them
ACS: Transform = ("acs-rf", (512, SIGMA, None))  # the same, then 512 random features of the expected log-likelihood
SCALE: Transform = ("scale", (None,))


@dataclass(frozen=True)
class Setting:
    """How a method calls `select_batch`; `with_train` is the paper's mode TP, else it is P."""

    method: str
    with_train: bool = False
    transforms: tuple[Transform, ...] = ()


GRAD = {
    "lcmd": Setting("lcmd", True),
    "bait": Setting("bait", False, (POSTERIOR,)),
    "badge": Setting("kmeanspp", True),
    "coreset": Setting("maxdist", True),
    "batchbald": Setting("maxdet", False, (POSTERIOR,)),
    "acsfw": Setting("fw", False, (ACS,)),
}
PREDICTIONS = GRAD | {
    "bait": Setting("bait", False, (SCALE,)),
    "batchbald": Setting("maxdet", False, (SCALE,)),
    "acsfw": Setting("fw"),
}


def gradient_features(view: View) -> Tensor:  # one run -> (n, 512)
    fitted = view.fitted
    if not isinstance(fitted, FittedMLP) or view.points is None:
        raise InputError("gradient features need the MLP ensemble of aicau; with another ensemble use sigma features")
    key = streams.fold(streams.fold(view.keys[0], Purpose.CHOICE), 1)
    return sketch(fitted.parameters[0], view.points, fitted.settings, key, SKETCH)


def prediction_features(view: View) -> Tensor:  # one run -> (n, K)
    if view.predictions is None:
        raise InputError("sigma features need the predictions of an ensemble")
    return decomposition.covariance(view.predictions[0].double()).factor


SOURCES: dict[str, tuple[Callable[[View], Tensor], dict[str, Setting]]] = {
    "grad": (gradient_features, GRAD),
    "sigma": (prediction_features, PREDICTIONS),
}


def select(name: str, features: Callable[[View], Tensor], setting: Setting, view: View, m: int) -> list[int]:
    with numpy_infinity():
        algorithms = require("bmdal_reg.bmdal.algorithms", name)
    phi = features(view)
    pool = view.allowed[0].nonzero()[:, 0]
    train = phi[measured_rows(view)]
    if not bool(train.any()):
        return []  # no member differs from another anywhere it was trained: there is no kernel to scale
    data = {"train": algorithms.TensorFeatureData(train), "pool": algorithms.TensorFeatureData(phi[pool])}
    with numpy_infinity(), contextlib.redirect_stdout(io.StringIO()):  # it prints where it falls back to random points
        chosen, _ = algorithms.select_batch(
            batch_size=m,
            models=[nn.Identity()],  # a linear kernel on the features asks for a model and does not use it
            data=data,
            y_train=None,
            base_kernel="linear",
            kernel_transforms=[(word, list(arguments)) for word, arguments in setting.transforms],
            selection_method=setting.method,
            sel_with_train=setting.with_train,
            maxdet_sigma=SIGMA,
            bait_sigma=SIGMA,
            verbosity=0,
        )
    return pool[chosen].tolist()


@contextlib.contextmanager
def numpy_infinity() -> Iterator[None]:
    """`np.Inf`, which bmdal_reg 3.0.2 uses and NumPy 2 removed, for the time of one call."""
    missing = not hasattr(np, "Inf")
    if missing:
        setattr(np, "Inf", np.inf)  # noqa: B010 - NumPy's types do not know it
    try:
        yield
    finally:
        if missing:
            delattr(np, "Inf")


PEERS = tuple(
    Peer(f"{method}:{source}", partial(select, f"{method}:{source}", features, setting))
    for source, (features, settings) in SOURCES.items()
    for method, setting in settings.items()
)
