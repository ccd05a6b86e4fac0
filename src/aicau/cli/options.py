"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Where = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="A file such as screen.db, or postgresql://host/database")
]
Layout = Annotated[str | None, typer.Option(help="The plate: 96, 384 or a CSV file with a column 'well'")]
Control = Annotated[
    list[str] | None, typer.Option(help="A control on every plate: NAME=8 wells, or NAME=A01+H12; repeat")
]
Edges = Annotated[bool, typer.Option(help="Use the outermost wells of the plate")]
Author = Annotated[str | None, typer.Option(help="Who does this; default $AICAU_AUTHOR, else the user's name")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file of that name")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text")]
Out = Annotated[Path | None, typer.Option(help="Write to this CSV, Excel (.xlsx) or Parquet file")]
SheetName = Annotated[str | None, typer.Option("--sheet", help="Which sheet of an Excel file")]
Skip = Annotated[int, typer.Option(help="Lines above the column names, of an instrument for example")]
EngineName = Annotated[str, typer.Option("--engine", help="Where to compute: local, or ray (extra ray)")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster; default: a new one on this machine")]
Seed = Annotated[int, typer.Option(help="Same seed, same result")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
