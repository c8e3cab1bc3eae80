"""What a catalog has under a table identifier: the facts about a table that decide what has to change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from connector.config.values import FORMAT_VERSIONS
from connector.evolution.property_changes import REFUSED_IDENTIFIER_FIELDS
from connector.model.binding import PLAIN, Arrangement
from connector.model.table_identifier import Generation, Owner


@dataclass(frozen=True)
class ExistingTable:
    """The facts about a table that decide what has to change."""

    schema: Schema
    uuid: str
    owner: Owner | None
    # What depends on a column, such as a partition spec, and so prevents its change; by field id.
    pinned: Mapping[int, str] = field(default_factory=dict)
    # Columns, by field id, with a value that could not be converted.
    unconvertible: frozenset[int] = frozenset()
    has_rows: bool = False
    needs_snapshot: bool = False  # it has none, and its catalog does not check commits that assert this
    arrangement: Arrangement = PLAIN  # the current partition spec and sort order
    # Of the columns that its current rows have. `schema` may be that of a backfill, which has no rows yet.
    current_ids: frozenset[int] = frozenset()
    # The partition fields of all its specs: by name, the id of the column that it comes from. REST catalogs refuse a
    # table in which another column has such a name.
    partition_fields: Mapping[str, int] = field(default_factory=dict)
    generation: Generation | None = None  # of its owner's rows; None if no backfill has replaced them
    # The types of its current columns, if its catalog refuses columns of other types in their places.
    fixed_types: tuple[IcebergType, ...] = ()
    format_version: int = FORMAT_VERSIONS[0]
    properties: Mapping[str, str] = field(default_factory=dict)
    # The materialization for which Estuary's S3 Iceberg connector has written it, if no other one has, and no task of
    # this connector owns it.
    taken_over: str | None = None
    location: str | None = None  # of its files; None: the kind of store is not checked

    def is_of(self, materialization: str) -> bool:
        """Whether that materialization created it."""
        return self.owner is not None and self.owner.materialization == materialization

    @property
    def refuses_identifier_fields(self) -> bool:
        """Whether it records that its catalog refuses them."""
        return REFUSED_IDENTIFIER_FIELDS.items() <= self.properties.items()

    def has_rows_of(self, materialization: str) -> bool:
        """Whether its rows are that materialization's, also if Estuary's S3 Iceberg connector has written them."""
        return self.is_of(materialization) or self.taken_over == materialization

    def generation_of(self, materialization: str) -> Generation:
        """The generation that a materialization's staged commits must have."""
        recorded = self.generation
        return recorded if recorded and recorded.materialization == materialization else Generation(self.uuid)


@dataclass(frozen=True)
class CatalogEntry:
    """What the catalog has under a table identifier."""

    namespace_exists: bool
    table: ExistingTable | None
    refuses_identifier_fields: bool = False  # the catalog has just done so
