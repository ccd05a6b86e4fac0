"""The command line's frame. Heavy imports happen inside the commands, so that `aicau --help` answers at once."""

import errno
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from typer import Option

from aicau.core.errors import AicauError, InputError, StoreError, secretive, without_password
from aicau.core.files import reason

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign

START = time.perf_counter()  # so that a command can say how long it took with its imports


class Verbs(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # about arguments: it quotes them
            if isinstance(words := getattr(error, "message", None), str):
                for word in filter(secretive, sys.argv[1:]):
                    words = words.replace(word, "(an address)")
                error.message = without_password(words)  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=Verbs,
    help="Choose the next batch of experiments when measurements are noisy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from aicau import __version__

        print(f"aicau {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version")] = False,
) -> None:
    """Choose the next batch of experiments when measurements are noisy, unevenly noisy, and noisy together."""


def opened(campaign: str, author: str | None = None) -> "Campaign":
    """The campaign that a verb works on."""
    from aicau.campaign.campaign import Campaign

    return Campaign.open(campaign, author)


def main() -> None:
    """Entry point: an error is one sentence; 2 where the input was wrong, 1 for anything else."""
    for name in ("stdout", "stderr"):  # closed by whoever started this: nobody reads it
        setattr(sys, name, getattr(sys, name) or open(os.devnull, "w"))  # noqa: SIM115
    try:
        try:
            check_words(sys.argv[1:])
            check_once(sys.argv[1:])
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()
    except StoreError as error:
        fail(str(error), 1)
    except AicauError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail("stopped", 1)
    except BrokenPipeError:
        fail("", 1)  # whoever read the output has seen enough
    except OSError as error:
        fail(f"the system refused: {reason(error)}", 2 if error.errno == errno.ENAMETOOLONG else 1)
    except Exception as error:
        fail(f"something went wrong ({type(error).__name__}: {reason(error) or 'no message'})", 1)


def check_words(words: list[str]) -> None:
    """Names come from the command line into the store: they must be text."""
    for word in words:
        try:
            word.encode()
        except UnicodeError:
            raise InputError(f"{word!r} is not text in UTF-8; write it in UTF-8") from None
        value = word.partition("=")[2] if word.startswith("--") else word
        if value.isspace():
            raise InputError(f"{word!r} is blank; write a name, or leave it out")


def check_once(words: list[str]) -> None:
    """An option that is given twice would silently lose its first value."""
    verbs = getattr(typer.main.get_command(app), "commands", {})
    verb = verbs.get(words[0]) if words else None
    for option in verb.params if verb is not None else ():
        given = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
        if not getattr(option, "multiple", False) and (count := sum(given.count(name) for name in option.opts)) > 1:
            raise InputError(f"{option.opts[0]} is given {count} times; give it once")


def fail(sentence: str, code: int) -> None:
    if sentence:
        print(f"aicau: {without_password(sentence)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written would be tried again at the very end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(code) from None
