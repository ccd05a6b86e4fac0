"""A strategy: acquisition, bias, batching (and the difference between rounds) side by side, named by one string.

`acquisition[:bias][:batching][:form][:difference]`, e.g. `random`, `lc`, `br:perfect:top`, `pemse:direct:eigen`,
`pemse:quadratic:eigen:difference`. Batching is `top` where it is not given. A form (`brier`, `symmetric`) is for
classification: another divergence than Kullback-Leibler, one that has a matrix.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from aicau.acquisition import ACQUISITIONS, FORMS, Acquisition, Score, View
from aicau.batching import BATCHINGS, Batching, Selection
from aicau.bias import BIASES, BiasEstimator
from aicau.core.errors import InputError, shown, unknown
from aicau.core.runs import by_run
from aicau.core.task import REGRESSION, Task

# What the word `default` stands for: docs/comparison.md and docs/classification.md.
DEFAULTS = {"regression": "br:posterior:gain", "count": "br:posterior:gain", "classification": "trust:spread"}
FREE = 1e-9  # the cost of candidates whose cost is 0: they come first
FIRST_DIFFERENCE = 2  # rounds 0 and 1 use the plain score: two models must have been seen


@dataclass(frozen=True)
class Choice:
    """What a strategy chose.

    Parameters
    ----------
    selection : Selection
        The points, shape (runs, m), and the numbers that decided.
    alpha : Tensor, shape (runs, n)
        The score they were chosen by.
    plain : Score
        The score without the difference: the next round needs it. None where no round does.

    Examples
    --------
    >>> import torch
    >>> from aicau import Strategy, View, streams
    >>> none = torch.zeros(1, 6, dtype=torch.bool)
    >>> view = View(torch.linspace(0, 1, 6)[:, None], ~none, none, streams.runs(0, 1))
    >>> Strategy.parse("farthest").choose(view, 2).selection.index
    tensor([[2, 5]])
    """

    selection: Selection
    alpha: Tensor
    plain: Score | None = None


class Chooser(Protocol):
    """What a lane of a simulation needs: a `Strategy`, or the method of another package."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def bias(self) -> BiasEstimator | None:
        """The estimator whose result it wants to see."""

    def choose(self, view: View, m: int, previous: Score | None = None) -> Choice:
        """The next m points of every run."""


@dataclass(frozen=True)
class Strategy:
    """How the next batch is chosen: four parts side by side.

    Build one with `Strategy.parse`, or part by part.

    Parameters
    ----------
    name : str
        Its string, the same in Python, on the command line and in files.
    acquisition : Acquisition
        What is maximised.
    batching : Batching
        How a batch is made of it.
    bias : BiasEstimator
        Where the acquisition needs the bias.
    difference : bool
        Look at the score of the last round minus that of this one, from the third round on.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct:eigen").bias
    Direct(alpha=1e-06)
    """

    name: str
    acquisition: Acquisition
    batching: Batching
    bias: BiasEstimator | None = None
    difference: bool = False

    @classmethod
    def parse(cls, text: str, task: Task = REGRESSION, **parts: Any) -> "Strategy":
        """A strategy from its string.

        Parameters
        ----------
        text : str
            `acquisition[:bias][:batching][:form][:difference]`, or `default`: what measured best without cheating.
        task : Task
            What is measured; `default` depends on it.
        **parts
            Objects in place of words, e.g. `bias=Direct(alpha=1e-4)`.

        Returns
        -------
        Strategy

        Raises
        ------
        InputError
            An unknown word (the message has the nearest known one), or words that do not go together.
        """
        text = str(text).strip().lower()
        if text == "default":
            return replace(cls.parse(DEFAULTS[task.name], **parts), name="default")
        head, *words = (word.strip() for word in text.split(":"))
        if head == "default":
            meaning = DEFAULTS[task.name]
            raise InputError(f"'default' stands alone; here it means {meaning!r}: name that, and change its words")
        if head not in ACQUISITIONS:
            raise unknown("acquisition", head, [*ACQUISITIONS, "default"])
        kinds = dict.fromkeys(BIASES, "bias") | dict.fromkeys(BATCHINGS, "batching") | dict.fromkeys(FORMS, "form")
        kinds["difference"] = "change"
        found: dict[str, str] = {}
        for word in words:
            if word not in kinds:
                raise unknown("strategy word", word, list(kinds))
            if (kind := kinds[word]) in found:
                raise InputError(f"strategy {text!r} names its {kind} twice: {found[kind]!r} and {word!r}")
            found[kind] = word
        own, bias, form = ACQUISITIONS[head](), found.get("bias"), found.get("form")
        rule, known = found.get("batching", own.batching or "top"), ", ".join(sorted(BIASES))
        if own.needs_bias and not bias and "bias" not in parts:
            raise InputError(f"{head!r} needs a bias estimator, e.g. '{head}:direct'; known: {known}")
        if bias and not own.needs_bias:
            raise InputError(f"{head!r} does not use the bias; leave out {bias!r}")
        if "change" in found and not own.needs_model:
            raise InputError(f"{head!r} does not change between rounds, so it has no difference version")
        if form and not own.has_forms:
            raise InputError(f"{head!r} has no form {form!r}; br, pemse and epistemic have")
        if own.batching not in (None, rule):
            raise InputError(f"{head!r} always uses {own.batching!r} batching; leave out {rule!r}")
        batching, estimator = BATCHINGS[rule](), None if bias is None else BIASES[bias]()
        if "matrix" not in batching.uses and hasattr(estimator, "rank"):
            estimator = replace(estimator, rank=0)  # type: ignore[type-var]  # a diagonal is enough
        strategy = cls(":".join([head, *words]), replace(own, form=form), batching, estimator, "change" in found)
        return replace(strategy, **parts) if parts else strategy

    def __str__(self) -> str:
        return self.name

    @property
    def needs_model(self) -> bool:
        """Whether an ensemble must be fitted before it can choose."""
        return self.acquisition.needs_model

    def score(self, view: View, previous: Score | None = None) -> tuple[Score, Score]:
        """What is maximised, with the difference to the round before and the weights (a joint rule weighs itself); and
        without both."""
        plain = self.acquisition.score(view)
        score = plain.difference(previous) if self.difference and previous is not None else plain
        return score if view.weight is None or self.joint else score.weigh(view.weight), plain

    @property
    def joint(self) -> bool:
        """Whether the rule itself looks at weights, further targets and costs."""
        return getattr(self.batching, "joint", False)

    def choose(
        self,
        view: View,  # its leading dimension are the runs
        m: int,  # points per run
        previous: Score | None = None,  # the plain score of the round before, in the same units; None: no difference
    ) -> Choice:
        """The next batch of every run; run by run on the CPU, all at once elsewhere."""
        score, plain = self.score(view, previous)
        return self.pick(self.together(score, view), plain, view, m)

    def together(self, score: Score, view: View) -> Score:
        """What the rule sees: the sum over targets per cost, or its own score if it weighs targets and costs itself."""
        if self.joint:
            return score
        score = sum((one for one, _ in view.others), score)
        return score if view.cost is None else score.weigh(1 / torch.where(view.cost > 0, view.cost, FREE))

    def pick(self, score: Score, plain: Score | None, view: View, m: int) -> Choice:
        """The next batch of every run by this score."""

        def select(runs: Tensor) -> Selection:
            some = slice(int(runs[0]), int(runs[-1]) + 1)
            return self.batching.select(score[some], view[some], m)

        order = torch.arange(len(view), device=view.allowed.device)
        selection = by_run(select, order, points=view.allowed.shape[-1])
        return Choice(selection, score.alpha, plain if self.difference else None)

    def reason(self, choice: Choice, run: int, place: int, unit: float = 1.0) -> tuple[str, dict[str, float]]:
        """Why the point at a place of a run's batch was chosen, and the numbers behind it, scores times `unit`."""
        meaning = self.acquisition.meaning + (", its fall since the last round" if self.difference else "")
        numbers = choice.selection.numbers(run, place)
        if "score" in numbers and self.acquisition.in_error:  # for others `worth` is no error
            numbers |= {name: numbers[name] * unit for name in ("score", "worth")}
        return self.batching.reason(numbers, meaning), numbers

    def query(self, X: Any, y: Any, candidates: Any = None, batch_size: int = 1, **options: Any) -> Any:
        """Choose from a table: `aicau.query` with this strategy."""
        from aicau.arrays import query

        return query(self, X, y, candidates, batch_size, **options)


def chooser(strategy: Any, task: Task) -> Any:
    """A strategy from its string, or as it is."""
    if isinstance(strategy, str):
        return Strategy.parse(strategy, task=task)
    if isinstance(strategy, type) or not hasattr(strategy, "choose"):
        raise InputError(f"a strategy is a string such as 'default', or a Strategy; got {shown(strategy)}")
    return strategy
