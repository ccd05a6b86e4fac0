"""Reading and writing what laboratories have: CSV, Parquet, DataFrames."""

from aicau.tables.files import guard, guarded, read, write

__all__ = ["guard", "guarded", "read", "write"]
