"""Deletes files that nobody will need again, and only those."""
