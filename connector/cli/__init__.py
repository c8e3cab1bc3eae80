"""The commands that a person calls."""
