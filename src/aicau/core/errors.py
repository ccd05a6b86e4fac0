"""One family of errors: each says what was expected, what came, and what to do."""

import re
from difflib import get_close_matches

SECRET = "password", "secret"  # in the names of an address's parameters


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
    """The same sentence for every unknown word, with the nearest known one."""
    near = get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {kind} {word!r}; {hint}known: {', '.join(sorted(known))}")


def shown(value: object) -> str:
    """A value as a message names it: long ones are shortened."""
    words = repr(value)
    return words if len(words) <= 60 else words[:57] + "..."


def without_password(words: str) -> str:
    """The same words, with no password in any address: not after the user, not among the parameters."""
    words = re.sub(r"(\w:/+[^\s:/@]*):[^\s@]*@", r"\1@", words)
    return re.sub(rf"(\w*(?:{'|'.join(SECRET)})\w*=)[^\s&]*", r"\1***", words, flags=re.IGNORECASE)
