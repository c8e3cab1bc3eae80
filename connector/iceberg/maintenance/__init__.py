"""Keeps tables small: expires snapshots, and deletes files that no snapshot can need again."""
