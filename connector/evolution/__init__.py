"""From fields to columns, and from an existing table to the table that a binding needs: pure functions."""
