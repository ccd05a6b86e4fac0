"""A small campaign, and the pages of a server of their own; shared by the tests of pages."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSTILE = "<script>alert(1)</script>"
ROOT = Path(__file__).parents[1]


def pool(n=40):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"compound": [f"c{i}" for i in range(n)], "dose": rng.random(n), "ph": rng.random(n)})
    frame["solvent"] = np.where(np.arange(n) % 2, "oil", "water")
    frame.loc[3, "compound"] = HOSTILE
    return frame


def results(ids, plate, frame):
    """Two wells of each id."""
    value = frame.set_index("compound").loc[list(ids)]
    value = np.sin(4 * value.dose) + value.ph
    rows = pd.DataFrame({"compound": list(ids), "viability": value.round(3).to_numpy(), "plate": plate})
    return pd.concat([rows, rows.assign(viability=rows.viability + 0.01)], ignore_index=True)


class Server:
    """`aicau serve` in a process of its own."""

    def __init__(self, *words, port=0):
        source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        command = [sys.executable, "-m", "aicau", "serve", *map(str, words), "--port", str(port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source}
        )
        said = self.process.stdout.readline()
        self.url = re.search(r"http\S+?:\d+", said)[0]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, kind=signal.SIGTERM):
        self.process.send_signal(kind)
        self.process.wait(30)
        self.process.stdout.close()
