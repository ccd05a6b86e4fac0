"""Reading and writing what laboratories have: CSV, Excel, Parquet, DataFrames."""

from aicau.tables.files import guard, guarded, read, read_pool, unguarded, write

__all__ = ["guard", "guarded", "read", "read_pool", "unguarded", "write"]
