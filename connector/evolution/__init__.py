"""From fields to columns, and from the table that exists to the table that is wanted: pure functions of values."""
