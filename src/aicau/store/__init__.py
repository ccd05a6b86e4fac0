"""Where a campaign lives: an SQLite file by default, a PostgreSQL database for several stations."""

from aicau.store import changes, schema
from aicau.store.doctor import Check, examine
from aicau.store.identity import Measurement
from aicau.store.moment import Moment
from aicau.store.session import ABANDONED, COMPLETED, FAILED, PENDING, Session, numbers_of
from aicau.store.store import Chunk, Store, create_store, open_store, restore_store
from aicau.store.telling import Told, add_tell

__all__ = [
    "ABANDONED",
    "COMPLETED",
    "FAILED",
    "PENDING",
    "Check",
    "Chunk",
    "Measurement",
    "Moment",
    "Session",
    "Store",
    "Told",
    "add_tell",
    "changes",
    "create_store",
    "examine",
    "numbers_of",
    "open_store",
    "restore_store",
    "schema",
]
