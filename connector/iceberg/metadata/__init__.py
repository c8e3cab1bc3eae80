"""What a table's metadata say, read and written."""
