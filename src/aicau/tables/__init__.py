"""Reading and writing what laboratories have: CSV, Excel, Parquet, DataFrames."""

from aicau.tables.files import guard, guarded, read, unguarded, write

__all__ = ["guard", "guarded", "read", "unguarded", "write"]
