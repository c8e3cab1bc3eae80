"""A Flow materialization connector that commits JSON lines to Iceberg tables exactly once."""

VERSION = "0.1.0"
REVISION_VARIABLE = "MATERIALIZE_ICEBERG_REVISION"  # of the environment: the image's names its commit
