"""Parquet files: row groups, statistics, and column chunks that are copied without decoding them."""
