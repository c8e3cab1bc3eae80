"""The jobs of Spark: each writes, merges, searches, rewrites or compacts files in Spark's tasks."""
