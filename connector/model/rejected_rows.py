"""The name of the table that has the rejected rows of another one."""

from typing import Final

from connector.model.invalid_values import OnInvalid
from connector.model.table_identifier import TableIdentifier

SUFFIX: Final = "__rejected"


def name_rejected_table(path: TableIdentifier, on_invalid: OnInvalid) -> TableIdentifier | None:
    """The identifier of a table's table of rejected rows; None if the binding's policy needs none."""
    return TableIdentifier(path.namespace, path.name + SUFFIX) if on_invalid is OnInvalid.QUARANTINE else None
