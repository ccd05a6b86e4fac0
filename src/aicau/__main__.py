"""`python -m aicau` is `aicau`."""

from aicau.cli import main

main()
