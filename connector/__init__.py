"""A Flow materialization connector that commits JSON lines to Iceberg tables exactly once."""

VERSION = "0.1.0"
