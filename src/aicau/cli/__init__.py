"""The command line: the same verbs as the library, each with `--json`."""

from aicau.cli import campaign, changes, outcome, paper
from aicau.cli.app import app, main

__all__ = ["app", "campaign", "changes", "main", "outcome", "paper"]
