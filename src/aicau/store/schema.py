"""The tables of a campaign, and the append-only list of steps that leads to them.

| table | one row is |
|---|---|
| `meta` | a setting of the file itself: format, version, settings (JSON) |
| `chunks` | some thousand candidates: their ids and their columns as Arrow bytes |
| `asks`, `proposals` | one request for a batch, and the points it got: pending, completed, failed or abandoned |
| `tells`, `measurements` | one file that came back, and its rows: never overwritten, only superseded |
| `events` | one thing that happened, with time and author; changes of a campaign are replayed from here on reading |
| `models` | the fitted model behind the batches of a round: safetensors (nothing once it was dropped) and JSON |

Numbers of rows are given out by the writer that holds the lock, one after another, so that the same history has the
same numbers on every database.
"""

from typing import Any

from sqlalchemy import Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

FORMAT = "aicau campaign"

metadata = MetaData()


def _key(name: str) -> Column[int]:
    return Column(name, Integer, primary_key=True, autoincrement=False)


def _given(kind: Any, *names: str) -> list[Column[Any]]:
    """Columns that every row fills."""
    return [Column(name, kind, nullable=False) for name in names]


def _table(name: str, *columns: Column[Any]) -> Table:
    return Table(name, metadata, *columns)


meta = _table("meta", Column("key", Text, primary_key=True), *_given(Text, "value"))
chunks = _table(
    "chunks", _key("number"), *_given(Integer, "size"), *_given(Text, "digest"), *_given(LargeBinary, "ids", "features")
)
asks = _table(
    "asks",
    _key("id"),
    Column("request", Text, unique=True),
    *_given(Integer, "round", "basis", "size"),
    *_given(Text, "strategy"),
)
proposals = _table(
    "proposals",
    _key("ask"),
    _key("position"),
    *_given(Integer, "candidate", "replicate"),
    *_given(Text, "status", "why", "numbers"),
)
tells = _table("tells", _key("id"), *_given(Text, "digest"), *_given(Integer, "rows", "correct"))
measurements = _table(
    "measurements",
    _key("id"),
    *_given(Integer, "tell", "candidate"),
    *_given(Text, "status"),
    *(Column(name, Double) for name in ("value", "sem")),
    *_given(Integer, "repeats"),
    Column("batch", Text),
    *(Column(name, Integer) for name in ("replicate", "superseded_by")),
    Column("label", Text),  # in place of a value where classes are measured
    Column("target", Text, nullable=False, server_default=""),  # which, in a campaign with several
)
events = _table(
    "events",
    _key("id"),
    *_given(Text, "time", "author", "kind"),
    Column("reference", Integer),
    *_given(Text, "detail"),
)
models = _table(
    "models",
    _key("basis"),
    *_given(Integer, "round"),
    *_given(LargeBinary, "tensors"),
    *_given(Text, "info"),
    Column("digest", Text),  # of tensors and info; none in models that earlier versions kept
)
Index("proposals_by_status", proposals.c.status)
Index("tells_by_digest", tells.c.digest)
Index("events_by_kind", events.c.kind)

# Append only: a step that a campaign somewhere has taken is never changed. Files of version 1 took none of them; a new
# file has the tables above and the last version. A new column stands last in its table, where a step puts it, too.
MIGRATIONS = [
    "ALTER TABLE measurements ADD COLUMN label TEXT",
    "ALTER TABLE models ADD COLUMN digest TEXT",
    "CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind)",
    "ALTER TABLE measurements ADD COLUMN target TEXT NOT NULL DEFAULT ''",
]


def version() -> int:
    """Of the tables above."""
    return 1 + len(MIGRATIONS)
