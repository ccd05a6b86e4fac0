"""`python -m bench`: the comparison with the field, from the root of the repository."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from aicau.cli.app import fail
from aicau.cli.options import Address, Device, EngineName, Seed
from aicau.cli.output import run_to_page
from aicau.core.engine import Engine
from aicau.core.errors import AicauError

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    suite: Annotated[str, Option(help="toy, noisy, real, classes or phase")] = "toy",
    data: Annotated[Path | None, Option(help="For real: the folder of a data set, or of several")] = None,
    strategy: Annotated[list[str] | None, Option(help="Only this strategy or peer; repeat for several")] = None,
    panel: Annotated[list[str] | None, Option(help="Only this panel or data set, such as type2-10; repeat")] = None,
    ensemble: Annotated[str, Option(help="The model of all methods: paper (networks) or process")] = "paper",
    runs: Annotated[int, Option(help="Repetitions; all methods share their points and noise")] = 10,
    seed: Seed = 0,
    most: Annotated[int, Option(help="For real: points of the pool, drawn from the data set")] = 2000,
    gp: Annotated[bool, Option("--gp", help="Also methods with a Gaussian process of their own (slow)")] = False,
    device: Device = "auto",
    jobs: Annotated[int, Option(help="Processes, one core each: the same numbers, sooner")] = 1,
    engine: EngineName = "local",
    address: Address = None,
    out: Annotated[Path, Option(help="Folder for tables, pictures and bench.md")] = Path("results/bench"),
    as_json: Annotated[bool, Option("--json", help="Print one JSON object at the end")] = False,
) -> None:
    """Compare with random, space filling, the paper and the methods of other packages, on the same models and noise.

    Example: python -m bench --suite toy --panel type2-10 --strategy random --strategy br:posterior:gain --runs 3
    """
    if context.invoked_subcommand is not None:
        return
    from bench.phase import diagram
    from bench.report import compare
    from bench.suites import Settings

    words, phase = tuple(strategy or ()), suite == "phase"
    settings = Settings(suite, words, runs, seed, ensemble, gp, data, most, tuple(panel or ()))
    work = partial(diagram if phase else compare, settings, out, device, engine=Engine(engine, jobs, address))
    run_to_page(work, out / ("phase.md" if phase else "bench.md"), as_json, suite)


@app.command()
def campaign(
    data: Annotated[Path, Option(help="The folder of a data set, or of several")],
    line: Annotated[list[str] | None, Option(help="Only this line, such as random+forest; repeat")] = None,
    panel: Annotated[list[str] | None, Option(help="Only this data set; repeat for several")] = None,
    goal: Annotated[str, Option(help="map, max, min, above:T or below:T; T in standard deviations")] = "map",
    runs: Annotated[int, Option(help="Repetitions; all methods share their points and noise")] = 4,
    seed: Seed = 0,
    most: Annotated[int, Option(help="Points of the pool, drawn from the data set")] = 500,
    jobs: Annotated[int, Option(help="Processes, one core each")] = 1,
    engine: EngineName = "local",
    address: Address = None,
    seconds: Annotated[float, Option(help="Begin nothing new after so many seconds")] = math.inf,
    out: Annotated[Path, Option(help="Folder for the tables; what is there already is not computed again")] = Path(
        "results/campaign"
    ),
) -> None:
    """Compare what a laboratory gets: designs with their predictions, end to end.

    Example: python -m bench campaign --data ../data --panel yacht --line aicau --line random+forest --runs 2
    """
    from bench.campaign import Contest, compare

    contest = Contest(data, tuple(line or ()), tuple(panel or ()), runs, seed, most, goal)
    print(compare(contest, out, Engine(engine, jobs, address), seconds))


def main() -> None:
    try:
        app()
    except AicauError as error:
        fail(str(error), 2)


if __name__ == "__main__":
    main()
