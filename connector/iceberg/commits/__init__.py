"""Commits to tables, and the fence that each of them checks and moves."""
