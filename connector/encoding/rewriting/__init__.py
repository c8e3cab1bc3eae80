"""Writes the live rows of data files to new files: compaction, and conversion of columns."""
