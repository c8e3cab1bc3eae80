"""Looks up many tables at once, since each look-up mostly waits for the catalog."""

from collections.abc import Sequence
from typing import Final

from pyiceberg.catalog import Catalog

from connector.config.settings import EndpointConfig
from connector.errors import UserError
from connector.evolution.table_change import Found, Path
from connector.iceberg.catalogs.opening import explained
from connector.iceberg.tables import find
from connector.parallel import side_by_side

LOOKUPS_AT_ONCE: Final = 8


def find_all(catalog: Catalog, endpoint: EndpointConfig, paths: Sequence[Path]) -> list[Found | UserError]:
    """What the catalog has at each path, or the UserError that says why it cannot be written to; raises other
    errors."""

    def look_up(path: Path) -> Found | UserError:
        try:
            with explained(endpoint):
                return find(catalog, path)
        except UserError as error:
            return error

    return side_by_side(look_up, paths, LOOKUPS_AT_ONCE, "lookup")
