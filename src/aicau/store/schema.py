"""The tables of a campaign, and the append-only list of migrations that leads to them.

| table | a row is |
|---|---|
| `meta` | a setting of the file itself: format, version, settings (JSON) |
| `chunks` | some thousand candidates: their ids and their columns as Arrow bytes |
| `asks`, `proposals` | a request for a batch, and its points: pending, completed, failed or abandoned |
| `tells`, `measurements` | a file of results, and its rows: never overwritten, only superseded |
| `events` | something that happened, with time and author; changes of a campaign are replayed from here |
| `models` | the fitted model of a round: safetensors (empty after it was dropped) and JSON |

Row numbers are given out one after another by the writer that holds the lock, so they are the same on every database.
"""

from typing import Any

from sqlalchemy import Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

FORMAT = "aicau campaign"
KINDS = {"int": Integer, "text": Text, "float": Double, "bytes": LargeBinary}

metadata = MetaData()


def _table(name: str, columns: str) -> Table:
    """A table by its columns: name, kind and marks of each (`key`, `unique`, `?`: optional, `''`: the default)."""
    made: list[Column[Any]] = []
    for own, kind, *marks in map(str.split, columns.split(",")):
        how: dict[str, Any] = {"primary_key": "key" in marks, "unique": "unique" in marks or None}
        how |= {"nullable": "?" in marks, "server_default": "" if "''" in marks else None}
        made.append(Column(own, KINDS[kind], autoincrement=False, **how))
    return Table(name, metadata, *made)


meta = _table("meta", "key text key, value text")
chunks = _table("chunks", "number int key, size int, digest text, ids bytes, features bytes")
asks = _table("asks", "id int key, request text unique ?, round int, basis int, size int, strategy text")
proposals = _table(
    "proposals", "ask int key, position int key, candidate int, replicate int, status text, why text, numbers text"
)
tells = _table("tells", "id int key, digest text, rows int, correct int")
measurements = _table(
    "measurements",
    "id int key, tell int, candidate int, status text, value float ?, sem float ?, repeats int, batch text ?,"
    # A label stands in place of a value where classes are measured; the target is named where there are several.
    " replicate int ?, superseded_by int ?, label text ?, target text ''",
)
events = _table("events", "id int key, time text, author text, kind text, reference int ?, detail text")
# The digest is that of tensors and info; models that earlier versions kept have none.
models = _table("models", "basis int key, round int, tensors bytes, info text, digest text ?")
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
    """The version of the tables above."""
    return 1 + len(MIGRATIONS)
