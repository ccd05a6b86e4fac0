"""Selection methods of other packages (extra `peers`), called through their own code; a new one is one file.

`PEERS` choose on the same F_k as our strategies and stand where a strategy stands. `GP_LINES` bring their own model, so
they are separate lines: `gp_curve` runs them from the same initial points and with the same noise.
"""

from bench.peers import batchbald, bmdal, greedy, hetgpy, qnipv
from bench.peers.base import Peer
from bench.peers.gp import GPLine, gp_curve

PEERS: dict[str, Peer] = {peer.name: peer for peer in (*bmdal.PEERS, *greedy.PEERS)}
CLASS_PEERS: dict[str, Peer] = {peer.name: peer for peer in batchbald.PEERS}
GP_LINES: dict[str, GPLine] = {line.name: line for line in (qnipv.LINE, hetgpy.LINE)}

__all__ = ["CLASS_PEERS", "GP_LINES", "PEERS", "GPLine", "Peer", "gp_curve"]
