"""Reading and writing what laboratories have: CSV, Excel, Parquet, DataFrames."""

from aicau.tables.files import guarded, read, read_pool, unguarded, write
