"""Checks whether a config can be used: the catalog, the storage, Spark."""
