"""How a new file gets its name: whole or not at all, and never in the place of another."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def making(path: Path) -> Iterator[int]:
    """The folder, locked together with all others that make a campaign in it. The lock ends with the process, so who
    finds no other removes what a killed process left of this name."""
    import fcntl

    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # another makes a campaign here now, or the file system knows no locks
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]+\.partial(-wal|-shm|-journal)?")
            if found := [file for file in path.absolute().parent.iterdir() if ours.fullmatch(file.name)]:
                if path.exists() and path.stat().st_size == 0:  # it died inside give_name
                    path.unlink()
                for file in found:
                    file.unlink()
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield folder
    finally:
        os.close(folder)


def give_name(partial: Path, path: Path) -> None:
    """Move the finished file to its place, unless another was faster: a plain rename would overwrite that one."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links here: an empty file takes the name, and only who made it may replace it
        path.touch(exist_ok=False)
        try:
            partial.rename(path)
        except OSError:
            path.unlink()
            raise
