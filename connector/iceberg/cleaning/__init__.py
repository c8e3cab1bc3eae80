"""Deletes files that nobody can need again, and no others."""
