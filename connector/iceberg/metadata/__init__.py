"""Reads and writes the metadata of tables: manifests, updates, references, retention."""
