"""The methods of the comparison by their names: simple ones, the paper's, ours, and those of other packages."""

import importlib.util
from collections.abc import Sequence

from aicau.core.errors import InputError
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import MLP, Ensemble
from aicau.paper import plan as paper
from aicau.strategy import DEFAULTS, Chooser, Strategy
from bench import classes as bench_classes
from bench import peers

DEFAULT = DEFAULTS[REGRESSION.name]
OURS = (DEFAULT, "pemse:direct:spread")
REFERENCE = "br:perfect:spread"  # knows the truth: what could be gained, no competitor
SIMPLE = ("random", "farthest", "lc")
HANDFUL = ("random", "farthest", "pemse:quadratic:eigen", "pemse:direct:spread", DEFAULT)  # of the phase diagram
PAPER = tuple(word for word in paper.BATCHED if "perfect" not in word)
STRONG = tuple(f"{m}:{f}" for m in ("lcmd", "bait", "badge", "coreset", "batchbald") for f in ("grad", "sigma"))
_PACKAGE = {
    **{name: "skactiveml" if name.startswith("gs") else "bmdal_reg" for name in peers.PEERS},
    "qnipv": "botorch",
    "hetgpy": "hetgpy",
    "batchbald": "batchbald_redux",
}


def lineup(ensemble: Ensemble) -> tuple[tuple[str, ...], list[str]]:
    """Every method that can take part here, and a sentence about those that cannot."""
    there = [name for name in peers.PEERS if installed(name)]
    notes = []
    if missing := [name for name in peers.PEERS if name not in there]:
        notes.append(f"Not installed, so not compared: {', '.join(missing)} (pip install 'aicau[peers]').")
    if not isinstance(ensemble, MLP):
        gone = [name for name in there if name.endswith(":grad")]
        there = [name for name in there if name not in gone]
        if gone:
            notes.append(f"Gradient features need the paper's networks, so not compared: {', '.join(gone)}.")
    return (*SIMPLE, *PAPER, REFERENCE, *OURS, *there), notes


def installed(name: str) -> bool:
    """Whether the package of a peer is there."""
    try:
        return importlib.util.find_spec(_PACKAGE[name]) is not None
    except (ImportError, ValueError):  # ValueError: a name that was shut out on purpose
        return False


def method(word: str, task: Task = REGRESSION) -> Chooser:
    """A strategy or a peer by its name; the paper's with everything as it prints it."""
    peer = {**peers.PEERS, **peers.CLASS_PEERS}.get(word)
    if peer is not None:
        return peer
    if word in peers.GP_LINES:
        raise InputError(f"{word} brings a model of its own: run it beside the others with --gp")
    return paper.strategy(word, "full-batch") if word in PAPER else Strategy.parse(word, task=task)


def families(words: Sequence[str]) -> dict[str, str]:
    """Where each method comes from, in a word."""
    known = {
        **dict.fromkeys(SIMPLE, "simple"),
        **dict.fromkeys(PAPER, "paper"),
        REFERENCE: "cheats",
        **dict.fromkeys([*OURS, *bench_classes.OURS], "ours"),
        **dict.fromkeys(bench_classes.SIMPLE, "simple"),
        **dict.fromkeys([*peers.PEERS, *peers.CLASS_PEERS], "peer"),
        **dict.fromkeys(peers.GP_LINES, "own model"),
    }
    return {word: known.get(word, "cheats" if "perfect" in word.split(":") else "other") for word in words}
