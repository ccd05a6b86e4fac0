"""The command line's frame. Heavy imports happen inside the commands, so that `aicau --help` answers at once."""

import sys
import time
from typing import Any

import typer
import typer.core

from aicau.errors import AicauError, StoreError, without_password

START = time.perf_counter()  # so that a command can say what it took with its imports


class Verbs(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # of the arguments: it quotes them
            if isinstance(words := getattr(error, "message", None), str):
                error.message = without_password(words)  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=Verbs,
    help="Choose the next batch of experiments when measurements are noisy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def top() -> None:
    """Choose the next batch of experiments when measurements are noisy, unevenly noisy, and noisy together."""


def main() -> None:
    """Entry point: an error is one sentence; 2 where the input was wrong, 1 for anything else."""
    try:
        app(standalone_mode=True)
    except StoreError as error:
        fail(str(error), 1)
    except AicauError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail("stopped", 1)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else "no message"
        fail(f"something went wrong ({type(error).__name__}: {first})", 1)


def fail(sentence: str, code: int) -> None:
    print(f"aicau: {without_password(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None
