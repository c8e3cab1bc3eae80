"""From Store lines to Arrow columns to Parquet files: pure functions that Spark's Python workers call."""
