"""`aicau reproduce`: run, draw, judge, write."""

import json
import shutil
import time
from pathlib import Path

from aicau.core.engine import HERE, Engine
from aicau.core.files import write_whole
from aicau.paper import figures, verdicts
from aicau.paper.plan import FIGURES, Outcome, Plan, Report, run, silent


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
    begin = time.perf_counter() if begin is None else begin
    state = out / "state"
    if not resume:
        shutil.rmtree(state, ignore_errors=True)
    (out / "summary.json").unlink(missing_ok=True)
    outcome = run(plan, device, state, resume, report, engine=engine)
    drawing = time.perf_counter()
    written = [path for name in plan.figures for path in write_figure(outcome, name, out)]
    judged = verdicts.judge(outcome)
    text = verdicts.to_markdown(judged, plan.runs)
    written.append(write_whole(out / "claims.md", lambda path: path.write_text(text)))
    outcome.seconds["files"] = time.perf_counter() - drawing
    outcome.seconds["total"] = time.perf_counter() - begin
    summary: dict[str, object] = {
        "figures": list(plan.figures),
        "runs": plan.runs,
        "presets": list(plan.presets),
        "claims": json.loads(verdicts.to_frame(judged).to_json(orient="records")),
        "files": [path.name for path in written],
        "seconds": {name: round(spent, 2) for name, spent in outcome.seconds.items()},
    }
    write_whole(out / "summary.json", lambda path: path.write_text(json.dumps(summary, indent=1)))
    return summary


def write_figure(outcome: Outcome, name: str, out: Path) -> list[Path]:
    """The picture and the tidy table of one figure."""
    picture, frame = figures.draw(outcome, name), outcome.figure(name)
    stem = f"figure-{FIGURES[name].number}-{name}"
    return [
        write_whole(out / f"{stem}.png", lambda path: picture.savefig(path, dpi=160)),
        write_whole(out / f"{stem}.svg", lambda path: picture.savefig(path)),
        write_whole(out / f"{stem}.parquet", lambda path: frame.to_parquet(path, index=False)),
        write_whole(out / f"{stem}.csv", lambda path: frame.to_csv(path, index=False)),
    ]
