"""Store and Load lines become record batches and keys."""
