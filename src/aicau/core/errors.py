"""One family of errors: each says what was expected, what came, and what to do."""

import re
from difflib import get_close_matches

_PARAMETER = r"\w*(?:pass|pwd|secret)\w*(?:=|%3D)"  # of an address


class AicauError(Exception):
    """Anything aicau refuses to do; the message is one sentence for a person.

    Examples
    --------
    >>> from aicau import AicauError, Strategy
    >>> try:
    ...     Strategy.parse("pemse:drect")
    ... except AicauError as error:
    ...     print(str(error)[:55])
    unknown strategy word 'drect'; did you mean 'direct'? k
    """


class InputError(AicauError, ValueError):
    """The input is invalid: wrong shape, NaN, an unknown word, too many points."""


class TrainingError(AicauError, RuntimeError):
    """A model could not be trained on the values it was given."""


class StoreError(AicauError, RuntimeError):
    """A campaign's store failed: locked, full, read-only, damaged or out of reach; nothing was changed."""


def unknown(kind: str, word: str, known: list[str]) -> InputError:
    """The error for an unknown word, with the nearest known one."""
    near = get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {kind} {word!r}; {hint}known: {', '.join(sorted(known))}")


def shown(value: object) -> str:
    """A value for a message, shortened if it is long."""
    try:
        words = repr(value)
    except ValueError:  # a whole number of thousands of digits
        words = type(value).__name__
    return words if len(words) <= 60 else words[:57] + "..."


def without_password(words: str) -> str:
    """Text with the passwords in addresses replaced: after the user and among the parameters."""
    words = re.sub(r"(\w:/+[^\s:/@]*):.*@", r"\1@", words, flags=re.DOTALL)
    return re.sub(rf"({_PARAMETER})(?:'[^']*'|[^\s&]*)", r"\1***", words, flags=re.IGNORECASE)


def secretive(word: str) -> bool:
    """Whether a word may hold a password, however an address was mistyped."""
    return re.search(rf":.*@|{_PARAMETER}", word, re.IGNORECASE | re.DOTALL) is not None
