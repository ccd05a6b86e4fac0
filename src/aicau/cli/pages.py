"""Campaigns as pages in a browser."""

from typing import Annotated

import typer

from aicau.cli.app import app
from aicau.core.errors import InputError


@app.command()
def serve(
    places: Annotated[
        list[str], typer.Argument(metavar="CAMPAIGN...", help="Files of campaigns, or folders that hold some")
    ],
    host: Annotated[str, typer.Option(help="Where to listen; another than this machine needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one", min=0, max=65535)] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="AICAU_TOKEN", help="A word that people must know; better in $AICAU_TOKEN")
    ] = None,
) -> None:
    """Show campaigns as pages in a browser: plan, look, drop results. Runs until it is stopped.

    Example: aicau serve screen.db
    """
    try:
        from aicau.web.serve import serve
    except ImportError as error:
        raise InputError(f"pages need more packages ({error.name}): pip install 'aicau[web]'") from None
    serve(places, host, port, token)
