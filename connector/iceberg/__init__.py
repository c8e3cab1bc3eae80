"""The lakehouse: catalogs, tables, and the fenced commit. The only package that imports pyiceberg.catalog."""
