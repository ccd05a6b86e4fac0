"""Skill: the share of measurements that members explain although they did not see them; 0 nothing, 1 all.

For values it is a share of their variance, for classes of the entropy of the labels. Noise counts against it: where
much of a measurement is noise, what members predict is partly noise they have learned.
"""

import torch
from torch import Tensor

from aicau.bias.base import Evidence
from aicau.bias.classes import TINY
from aicau.core.runs import by_run
from aicau.ensembles.base import one_hot

POWERS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)  # that probabilities are raised to: less sure to more sure


def skill(evidence: Evidence) -> Tensor:  # (...)
    """The share for each run; for values 0 where no member left anything out."""
    return _of_labels(evidence) if evidence.task.probabilities else _of_values(evidence)


def _of_values(evidence: Evidence) -> Tensor:  # (...)
    """1 − squared error of members on rows they did not see / that of the mean of these rows."""
    o = evidence.observations
    if evidence.unseen is None:
        return torch.zeros(o.y.shape[:-1], dtype=torch.double, device=o.y.device)

    def explained(residual: Tensor, y: Tensor, apart: Tensor) -> Tensor:  # (runs, l)
        count = apart.sum(-1, keepdim=True).clamp_min(1)
        about = torch.where(apart, y - (y * apart).sum(-1, keepdim=True) / count, 0.0)
        left = (residual**2 * apart).sum(-1) / (about**2).sum(-1)
        return (1 - left).nan_to_num(0.0).clamp(0, 1)  # no rows, or all alike: nothing to explain

    return by_run(explained, evidence.crossfitted(), o.y, evidence.unseen.any(-2), lead=o.y.ndim - 1)


def _of_labels(evidence: Evidence) -> Tensor:  # (...)
    """1 − log loss of members on labels they did not see / that of the frequencies of the classes; 0 to 1.

    Probabilities are first raised to the best of `POWERS`: networks that are too sure may still know where. Labels of
    the first batch count only where there is no other: where many labels are wrong together, members that saw some of
    them predict the wrong value of the others, too.
    """
    c, o, members = evidence.task.classes, evidence.observations, evidence.predictions.shape[-3]
    unseen = evidence.unseen
    if unseen is None:
        unseen = torch.zeros(*o.y.shape[:-1], members, o.rows, dtype=torch.bool, device=o.y.device)

    def explained(predictions: Tensor, index: Tensor, y: Tensor, apart: Tensor, batch: Tensor) -> Tensor:
        at = index[:, None, :, None].expand(-1, members, -1, c)
        rows = predictions.gather(-2, at).double().clamp_min(TINY).log()  # (runs, K, l, c)
        weight = torch.where(apart.any(-2, keepdim=True), apart, True)[..., None].double()  # where all saw it: all
        outside = (rows * weight).sum(-3) / weight.sum(-3)  # (runs, l, c)
        hot = one_hot(y, c)
        often = (hot.sum(-2, keepdim=True) + 1) / (y.shape[-1] + c)  # (runs, 1, c); never 0, nor 1
        later = batch != batch[..., :1]
        hot = hot * torch.where(later.any(-1, keepdim=True), later, True)[..., None]
        said = torch.stack([(hot * torch.log_softmax(power * outside, -1)).sum((-1, -2)) for power in POWERS])
        return (1 - said.amax(0) / (hot * often.log()).sum((-1, -2))).clamp(0, 1)

    return by_run(explained, evidence.predictions, o.index, o.y, unseen, o.batch, lead=o.y.ndim - 1)
