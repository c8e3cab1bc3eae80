"""What a user may set: the schemas, what is wrong with a config, and what it means."""
