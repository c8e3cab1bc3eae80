"""What a user may set: its schema, what is wrong with it, and what it means."""
