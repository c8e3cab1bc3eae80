"""Keeps tables small: expires snapshots, and deletes files that no snapshot will ever need."""
