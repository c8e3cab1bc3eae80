"""From fields to columns, and from the table that is there to the table that is wanted: pure."""
