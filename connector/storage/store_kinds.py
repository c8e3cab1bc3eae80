"""The kinds of stores, by the schemes of locations. A table must be in a store of the kind that the config names."""

import re
from typing import Final

from pyiceberg.table import Table

from connector.host.errors import UserError
from connector.model.table_identifier import TableIdentifier

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
AZURE_SCHEMES: Final = ("abfs", "abfss", "wasb", "wasbs")
NAMED_STORE: Final = "flow.store"  # ours, of catalogs: the kind of store that the config names; servers cannot send it

# The schemes of one kind of store. Any other scheme is a kind of its own.
_KINDS: Final = {
    "": "file",
    **dict.fromkeys(S3_SCHEMES, "s3"),
    **dict.fromkeys(AZURE_SCHEMES, "abfss"),
    "gcs": "gs",
    "viewfs": "hdfs",
}
_STORE: Final = re.compile(r"(?:([^:/]*):)?(?://([^/]*))?")


def store_of(location: str) -> tuple[str, str]:
    """Return the kind of store that a location is in, and the bucket. Some schemes mean the same kind."""
    found = _STORE.match(location)
    assert found, "it may be empty"
    scheme, bucket = (found[1] or "").lower(), found[2] or ""
    # A container of Azure has two addresses.
    return _KINDS.get(scheme, scheme), bucket.replace(".blob.", ".dfs.")


def check_store(table: Table) -> None:
    """Raise UserError if a table is on this machine, and the config names a store of another kind. Who may change the
    table's location could have any file of this machine deleted."""
    named = table.catalog.properties.get(NAMED_STORE, "file")
    if named != "file" and store_of(table.location())[0] == "file":
        raise UserError(
            f"Table {TableIdentifier.of(table)} is at {table.location()}, on this machine, but the config names a "
            f"store of another kind ({named}). The connector does not write to such a table, and deletes none of its "
            "files. Find out who has moved it, and set its location back, or choose another table name."
        )
