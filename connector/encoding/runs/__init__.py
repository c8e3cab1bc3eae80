"""Sorted runs: rows in order of partition and sort columns, and the merge of many runs."""
