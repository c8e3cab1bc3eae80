"""What the commands print about tables, as lines for a person and as JSON."""
