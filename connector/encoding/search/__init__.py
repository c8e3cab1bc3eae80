"""Finds the rows of keys in data files."""
