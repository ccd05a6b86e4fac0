"""Selection methods of other packages (extra `peers`), called through their own code; a new one is one file.

`PEERS` choose on the same F_k as our strategies and stand where a strategy stands. `GP_LINES` bring their own model, so
they are separate lines: `gp_curve` runs them from the same initial points and with the same noise.
"""

from aicau.errors import unknown
from aicau.experiments.peers import bmdal, greedy, hetgpy, qnipv
from aicau.experiments.peers.base import Peer
from aicau.experiments.peers.gp import GPLine, gp_curve

PEERS: dict[str, Peer] = {peer.name: peer for peer in (*bmdal.PEERS, *greedy.PEERS)}
GP_LINES: dict[str, GPLine] = {line.name: line for line in (qnipv.LINE, hetgpy.LINE)}


def make(name: str) -> Peer | GPLine:
    """A method by its name, e.g. `lcmd:grad`, `bait:sigma`, `gsx`, `qnipv`."""
    if name in PEERS:
        return PEERS[name]
    if name in GP_LINES:
        return GP_LINES[name]
    raise unknown("peer", name, [*PEERS, *GP_LINES])


__all__ = ["GP_LINES", "PEERS", "GPLine", "Peer", "gp_curve", "make"]
