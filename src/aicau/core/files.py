"""Files that are whole or not there: written beside their place, synced, then moved into it."""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aicau.core.errors import InputError, shown

PAGES = (".html", ".htm")


def check_new(path: Path, force: bool = False, campaign: str | None = None) -> None:
    """Refuse what would replace an existing file, unless `force`; never a folder, a device or the campaign."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {short(path)}: {reason(error)}; choose another name") from error
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise InputError(f"cannot write {path}: it exists and is not a file; choose another name")
    check_other(path, campaign)
    if not force:
        raise InputError(f"{path} exists already; choose another name, or replace it with --force (Python: force=True)")


def digest(path: Path) -> str:
    """The SHA-256 of what a file holds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def named(path: object) -> Path:
    """A path; anything else is refused."""
    if not isinstance(path, str | Path):
        raise InputError(f"expected the name of a file; got {shown(path)}")
    return Path(path)


def check_other(path: object, campaign: str | None) -> None:
    """Refuse the campaign itself: it is neither read as a table (closing it drops SQLite's locks) nor replaced."""
    there = campaign and isinstance(path, str | Path) and os.path.exists(path) and os.path.exists(campaign)
    if there and os.path.samefile(str(path), str(campaign)):
        raise InputError(f"{path} is the campaign itself; name another file")


def is_report(path: Path) -> bool:
    """Whether a file is a report that aicau wrote."""
    with suppress(OSError, ValueError):
        if path.suffix.lower() in PAGES and path.is_file():  # a campaign must not be opened here
            with path.open("rb") as file:
                return b'<meta name="generator" content="aicau">' in file.read(1000)
    return False


def write_whole(path: Path, write: Callable[[Path], object], force: bool = True) -> Path:
    """`write` fills a private file in the same folder (`.aicau-*.partial.*`); only a finished one takes the name.

    Permissions stay those of the file that is replaced. A symbolic link is replaced itself, not the file it points to.
    Without `force` nothing is replaced, even if it appears in the meantime.
    """
    check_new(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".aicau-{secrets.token_hex(8)}.partial{path.suffix}")
    old = os.lstat(path).st_mode if path.is_file() and not path.is_symlink() else None
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if old is None else old & 0o777))
    try:
        if old is not None:
            partial.chmod(old & 0o777)
        write(partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        if not force:
            with suppress(OSError):  # unlike a rename, a link never replaces; some file systems have none
                os.link(partial, path)
                return path
            check_new(path)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        sync_folder(path.parent)
    return path


def sync_folder(folder: Path) -> None:
    """Sync a folder, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reason(error: Exception) -> str:
    """Why the system refused, in a few words."""
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return short(words, 160)


def short(words: object, most: int = 200) -> str:
    """Text that fits into a message."""
    text = str(words)
    return text if len(text) <= most else text[: most - 3] + "..."
