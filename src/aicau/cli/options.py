"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Where = Annotated[str, Argument(metavar="CAMPAIGN", help="A file such as screen.db, or postgresql://host/database")]
Batch = Annotated[str | None, Option(help="The column with the batch of each measurement, such as plate or day")]
Strategy = Annotated[str | None, Option(help="How batches after the first are chosen, such as pemse:direct:spread")]
Goal = Annotated[
    str | None, Option(help="What to predict well: map (all candidates), max, min, above:3.5 or below:3.5")
]
Weight = Annotated[str | None, Option(help="The column with the weight of each candidate")]
Layout = Annotated[str | None, Option(help="The plate: 96, 384 or a CSV file with a column 'well'")]
Control = Annotated[list[str] | None, Option(help="A control on every plate: DMSO=8 wells or DMSO=A01+H12; repeat")]
Edges = Annotated[bool, Option(help="Use the outermost wells of the plate")]
Author = Annotated[str | None, Option(help="Your name, for the history; default $AICAU_AUTHOR, else the user's name")]
Force = Annotated[bool, Option("--force", help="Replace a file of that name")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text")]
Out = Annotated[Path | None, Option(help="Write to this CSV, Excel (.xlsx) or Parquet file")]
SheetName = Annotated[str | None, Option("--sheet", help="Which sheet of an Excel file")]
Skip = Annotated[int, Option(help="How many lines stand above the column names, from an instrument for example")]
EngineName = Annotated[str, Option("--engine", help="Where to compute: local (this machine) or ray (a Ray cluster)")]
Address = Annotated[str | None, Option(help="Address of the Ray cluster; default: start one on this machine")]
Seed = Annotated[int, Option(help="Start of the random numbers: same seed, same result")]
Device = Annotated[str, Option(help="Where to compute: cpu, cuda (a GPU) or auto")]
