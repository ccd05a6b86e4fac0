"""The verbs of the paper: compare strategies, compute its figures."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from aicau.cli import options as opt
from aicau.cli.app import app
from aicau.cli.output import progress, run_to_page
from aicau.core.errors import AicauError


@app.command()
def simulate(
    strategy: Annotated[
        list[str],
        Option(help="acquisition[:bias][:batching][:form][:difference], such as pemse:direct:eigen; repeat to compare"),
    ],
    problem: Annotated[str, Option(help="type1, type2, type3; class1, class2, class3")] = "type2",
    initial: Annotated[int, Option(help="Random points measured before the first round")] = 10,
    batch_size: Annotated[int, Option(help="Points per round")] = 10,
    rounds: Annotated[int, Option(help="Rounds after the initial points")] = 10,
    runs: Annotated[int, Option(help="Independent repetitions, paired between strategies")] = 10,
    seed: opt.Seed = 0,
    noise_scale: Annotated[float, Option(help="How many times the noise of the problem")] = 1.0,
    correlation_length: Annotated[
        float | None, Option(help="Over what distance noise of type3 is shared; default π/2")
    ] = None,
    grid: Annotated[int, Option(help="Points along each side of the grid")] = 50,
    device: opt.Device = "auto",
    plot: Annotated[Path | None, Option(help="Write the learning curves to this file (PNG, SVG or PDF)")] = None,
    engine: opt.EngineName = "local",
    address: opt.Address = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of a table")] = False,
) -> None:
    """Compare strategies on one of the paper's problems, or on one with classes.

    Example: aicau simulate --problem type3 --strategy random --strategy pemse:direct:spread --runs 5
    """
    if plot is not None and (plot.suffix.lower() not in {".png", ".svg", ".pdf"} or not plot.parent.is_dir()):
        raise AicauError(f"cannot write a plot to {plot}: name a .png, .svg or .pdf file in a folder that exists")
    from aicau import problems
    from aicau.core.engine import Engine
    from aicau.simulation.simulate import simulate as run
    from aicau.strategy import Strategy

    parameters = {"grid": grid, "noise_scale": noise_scale}
    if correlation_length is not None:
        parameters["correlation_length"] = correlation_length
    chosen = problems.make(problem, **parameters)
    strategies = [Strategy.parse(text, task=chosen.task) for text in strategy]
    settings, where = (initial, batch_size, rounds, runs, seed, device), Engine(engine, address=address)
    if as_json:
        result = run(chosen, strategies, *settings, engine=where)
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        from rich.console import Console

        from aicau.simulation.curves import table

        with progress("round", rounds + 1) as update:
            result = run(chosen, strategies, *settings, progress=lambda done, _: update(completed=done), engine=where)
        console = Console()
        console.print(table(result))
        console.print(f"{result.mse.shape[1]} runs in {result.seconds:.0f} s")
    if plot is not None:
        result.plot(str(plot))
        if not as_json:
            print(f"learning curves: {plot}")


@app.command()
def reproduce(
    figure: Annotated[str, Argument(help="perfect-information, estimation, batching or all")] = "all",
    runs: Annotated[int, Option(help="Paired repetitions; the paper has 10")] = 10,
    quick: Annotated[bool, Option("--quick", help="Only 3 runs of Figure 5, Types II and III, full-batch")] = False,
    seed: opt.Seed = 0,
    preset: Annotated[
        list[str] | None,
        Option(help="How Q is trained: learns, printed (both by default) or full-batch; repeat for several"),
    ] = None,
    device: opt.Device = "auto",
    out: Annotated[Path, Option(help="Folder for figures, tables and claims.md")] = Path("results"),
    resume: Annotated[bool, Option("--resume", help="Go on where an interrupted run stopped")] = False,
    engine: opt.EngineName = "local",
    address: opt.Address = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object at the end")] = False,
) -> None:
    """Compute the paper's figures and test its claims.

    Example: aicau reproduce batching --quick --out results
    """
    from aicau.core.engine import Engine
    from aicau.paper.plan import FIGURES, Plan
    from aicau.paper.reproduce import reproduce as run

    names = ("batching",) if quick and figure == "all" else tuple(FIGURES) if figure == "all" else (figure,)
    plan = Plan(names, 3, seed, ("type2", "type3"), presets=("full-batch",)) if quick else Plan(names, runs, seed)
    plan = replace(plan, presets=tuple(preset)) if preset else plan
    work = partial(run, plan, out, device, resume, engine=Engine(engine, address=address))
    run_to_page(work, out / "claims.md", as_json, ", ".join(names))
