"""The lakehouse: catalogs, changes of tables, and the fenced commit. The only place that imports pyiceberg.catalog."""
