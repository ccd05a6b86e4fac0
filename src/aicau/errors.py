"""One family of errors: each says what was expected, what came, and what to do."""


class AicauError(Exception):
    """Anything aicau refuses to do; the message is one sentence for a person."""


class InputError(AicauError, ValueError):
    """What was handed in cannot be meant: wrong shape, NaN, an unknown word, too many points."""


class TrainingError(AicauError, RuntimeError):
    """A model could not be trained on the values it was given."""


class StoreError(AicauError, RuntimeError):
    """A campaign's store failed: locked, full, read-only, damaged or out of reach; nothing was changed."""


def unknown(kind: str, word: str, known: list[str]) -> InputError:
    """The same sentence for every unknown word."""
    return InputError(f"unknown {kind} {word!r}; known: {', '.join(sorted(known))}")


def shown(value: object) -> str:
    """A value as a message names it: long ones are shortened."""
    words = repr(value)
    return words if len(words) <= 60 else words[:57] + "..."
