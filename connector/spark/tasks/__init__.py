"""What Spark's Python workers run to write data files. A task knows no JVM, and imports no job."""
