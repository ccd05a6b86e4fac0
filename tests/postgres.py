"""A real PostgreSQL server for tests and benchmarks: its own folder, a socket in it, no port."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path


def find_binaries():
    """The folder with initdb and pg_ctl: in PATH, or where Debian puts them; None where there is none."""
    found = shutil.which("pg_ctl")
    if found and shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name, reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def other_user():
    """The server refuses to run as root: a user to become then."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def server(durable=False):
    """Gives a function that makes a fresh database and returns its address; None where there is no server to start."""
    binaries, user = find_binaries(), other_user()
    if binaries is None or (os.geteuid() == 0 and (user is None or shutil.which("setpriv") is None)):
        yield None
        return
    become = []
    folder = Path(tempfile.mkdtemp(prefix="aicau-pg-"))
    if user is not None:
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chown(folder, user.pw_uid, user.pw_gid)

    def run(*command):
        done = subprocess.run([*become, *map(str, command)], capture_output=True, text=True, cwd=folder, timeout=120)
        assert done.returncode == 0, done.stderr + done.stdout

    data, log = folder / "data", folder / "log"
    options = f"-c listen_addresses='' -k {folder} -c max_connections=60"
    if not durable:
        options += " -c fsync=off -c full_page_writes=off"
    try:
        run(binaries / "initdb", "-D", data, "-U", "aicau", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        run(binaries / "pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")
        made = []

        def fresh():
            import psycopg

            name = f"campaign_{len(made)}"
            with psycopg.connect(f"host={folder} user=aicau dbname=postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            made.append(name)
            return f"postgresql://aicau@/{name}?host={folder}"

        yield fresh
    finally:
        if (data / "postmaster.pid").exists():
            run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)
