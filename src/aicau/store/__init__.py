"""Where a campaign lives: an SQLite file by default, a PostgreSQL database for several stations."""

from aicau.store import changes, schema
from aicau.store.changes import Moment
from aicau.store.doctor import Check, examine
from aicau.store.identity import Measurement
from aicau.store.session import ABANDONED, COMPLETED, FAILED, PENDING, Session, numbers_of
from aicau.store.store import Chunk, Store, create_store, open_store, restore_store
from aicau.store.telling import Told, add_tell
