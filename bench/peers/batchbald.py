"""BatchBALD (Kirsch, van Amersfoort & Gal 2019) through the authors' package batchbald_redux, for classes.

Points are taken one by one, each with the largest mutual information between the labels of the whole batch and which
member is right. The joint entropy is exact while the labels of the batch have few combinations, and sampled after that.
What a point adds to a batch is never more than its own mutual information (BALD), so candidates are those with the
largest.

The package asks for torchvision and a project template, which its selection does not use. Install it without them:
`pip install --no-deps batchbald_redux==2.0.5 toma==1.1.0`.
"""

import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import torch

from aicau.acquisition import View
from aicau.acquisition.scores import mutual_information
from aicau.core.errors import InputError
from bench.peers.base import Peer, require

SAMPLES = 500  # combinations of labels that the joint entropy is computed on
CANDIDATES = 300  # points with the largest BALD score
INSTALL = "pip install --no-deps batchbald_redux==2.0.5 toma==1.1.0 psutil tqdm"


def select(view: View, m: int) -> list[int]:
    """The batch of one run."""
    if not view.task.probabilities or view.predictions is None:
        raise InputError("batchbald is about classes and needs the probabilities of an ensemble")
    package = require("batchbald_redux.batchbald", "batchbald", INSTALL)
    allowed = view.allowed[0].nonzero()[:, 0]
    members = view.task.members(view.predictions[0])[allowed]  # (n, K, c)
    best = mutual_information(members).topk(min(CANDIDATES, len(allowed))).indices
    logs = members[best].clamp_min(torch.finfo(members.dtype).tiny).log().cpu()
    with frozen(), redirect_stderr(io.StringIO()):  # its progress bars
        batch = package.get_batchbald_batch(logs, m, SAMPLES, dtype=torch.double)
    return [int(allowed[best[i]]) for i in batch.indices]


@contextmanager
def frozen() -> Iterator[None]:
    """For the time of one call the garbage collector leaves out what is loaded already.

    The package collects garbage at every step, and would walk through all of it each time.
    """
    own = gc.get_freeze_count() == 0  # what somebody else has frozen stays so
    if own:
        gc.freeze()
    try:
        yield
    finally:
        if own:
            gc.unfreeze()


PEERS = (Peer("batchbald", select),)
