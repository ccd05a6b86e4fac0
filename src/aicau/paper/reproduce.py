"""`aicau reproduce`: run, draw, judge, write."""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from aicau.core.engine import HERE, Engine
from aicau.core.files import write_whole
from aicau.paper import figures, verdicts
from aicau.paper.plan import FIGURES, Plan, Report, run, silent


class Folder:
    """The files of one run, each whole or not there. `summary.json` comes last: where it is, all of them are."""

    def __init__(self, out: Path, begin: float | None) -> None:
        self.out, self.begin = out, time.perf_counter() if begin is None else begin
        self.files: list[str] = []
        (out / "summary.json").unlink(missing_ok=True)

    def add(self, name: str, content: str | pd.DataFrame | Figure) -> None:
        """Text, a table (.csv or .parquet) or a picture."""

        def write(path: Path) -> None:
            if isinstance(content, str):
                path.write_text(content)
            elif isinstance(content, Figure):
                content.savefig(path, dpi=150)
            else:
                (content.to_csv if path.suffix == ".csv" else content.to_parquet)(path, index=False)

        self.files.append(write_whole(self.out / name, write).name)

    def close(self, seconds: Mapping[str, float], **about: object) -> dict[str, object]:
        """Write the summary: what it is about, the files, and the seconds of each part and in all."""
        spent = {**seconds, "total": time.perf_counter() - self.begin}
        summary = about | {"files": self.files, "seconds": {name: round(part, 2) for name, part in spent.items()}}
        text = json.dumps(summary, indent=1, allow_nan=False)
        write_whole(self.out / "summary.json", lambda path: path.write_text(text))
        return summary


def reproduce(
    plan: Plan,
    out: Path,
    device: str = "auto",
    resume: bool = False,
    report: Report = silent,
    begin: float | None = None,  # when the command started, on the clock of time.perf_counter
    engine: Engine = HERE,
) -> dict[str, object]:
    """Everything of a plan under `out`: per figure PNG, SVG, Parquet and CSV; claims.md; summary.json last."""
    folder, state = Folder(out, begin), out / "state"
    if not resume:
        shutil.rmtree(state, ignore_errors=True)
    outcome = run(plan, device, state, resume, report, engine=engine)
    drawing = time.perf_counter()
    for name in plan.figures:
        stem, picture = f"figure-{FIGURES[name].number}-{name}", figures.draw(outcome, name)
        for kind in ("png", "svg"):
            folder.add(f"{stem}.{kind}", picture)
        for kind in ("parquet", "csv"):
            folder.add(f"{stem}.{kind}", outcome.figure(name))
    judged = verdicts.judge(outcome)
    folder.add("claims.md", verdicts.to_markdown(judged, plan.runs))
    return folder.close(
        outcome.seconds | {"files": time.perf_counter() - drawing},
        figures=list(plan.figures),
        runs=plan.runs,
        presets=list(plan.presets),
        claims=json.loads(verdicts.to_frame(judged).to_json(orient="records")),
    )
