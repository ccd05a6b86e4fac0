"""The command line's frame. Heavy imports happen inside the commands, so that `aicau --help` answers at once."""

import sys
import time

import typer

from aicau.core.errors import AicauError, StoreError

START = time.perf_counter()  # so that a command can say what it took with its imports

app = typer.Typer(
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
    print(f"aicau: {sentence}", file=sys.stderr)
    raise SystemExit(code) from None
