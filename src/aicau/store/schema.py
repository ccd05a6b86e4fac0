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

from sqlalchemy import Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

FORMAT = "aicau campaign"

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
chunks = Table(
    "chunks",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("size", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("ids", LargeBinary, nullable=False),
    Column("features", LargeBinary, nullable=False),
)
asks = Table(
    "asks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("request", Text, unique=True),
    Column("round", Integer, nullable=False),
    Column("basis", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("strategy", Text, nullable=False),
)
proposals = Table(
    "proposals",
    metadata,
    Column("ask", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("candidate", Integer, nullable=False),
    Column("replicate", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("numbers", Text, nullable=False),
)
tells = Table(
    "tells",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("correct", Integer, nullable=False),
)
measurements = Table(
    "measurements",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("tell", Integer, nullable=False),
    Column("candidate", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("value", Double),
    Column("sem", Double),
    Column("repeats", Integer, nullable=False),
    Column("batch", Text),
    Column("replicate", Integer),
    Column("superseded_by", Integer),
    Column("label", Text),  # in place of a value where classes are measured
    Column("target", Text, nullable=False, server_default=""),  # which, in a campaign with several
)
events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reference", Integer),
    Column("detail", Text, nullable=False),
)
models = Table(
    "models",
    metadata,
    Column("basis", Integer, primary_key=True, autoincrement=False),
    Column("round", Integer, nullable=False),
    Column("tensors", LargeBinary, nullable=False),
    Column("info", Text, nullable=False),
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
