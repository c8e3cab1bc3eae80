"""The lakehouse: catalogs, tables, metadata, the fenced commit, maintenance."""
