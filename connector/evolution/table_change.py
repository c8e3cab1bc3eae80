"""The changes of tables as values: what is there, what a table should become, and the changes between them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType

from connector.config.terms import SortTerm, Term
from connector.config.values import FORMAT_VERSIONS
from connector.evolution.arrangement_changes import ArrangementChange
from connector.evolution.binding_settings import DEFAULT_SETTINGS, BindingSettings, IdentifierFields
from connector.evolution.property_changes import SetTableProperties
from connector.model.binding import PLAIN, Arrangement
from connector.model.owner import Owner
from connector.model.table_identifier import Generation, TableIdentifier

COMPACTION_PROPERTY: Final = "flow.compaction.enabled"


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
    has_snapshot: bool = False
    arrangement: Arrangement = PLAIN  # the current partition spec and sort order
    generation: Generation | None = None  # of its owner's rows; None if no backfill has replaced them
    # The types of its current columns, if its catalog refuses columns of other types in their places.
    fixed_types: tuple[IcebergType, ...] = ()
    format_version: int = FORMAT_VERSIONS[0]
    properties: Mapping[str, str] = field(default_factory=dict)

    def is_of(self, materialization: str) -> bool:
        """Whether that materialization created it."""
        return self.owner is not None and self.owner.materialization == materialization

    def generation_of(self, materialization: str) -> Generation:
        """The generation that a materialization's staged commits must have."""
        recorded = self.generation
        return recorded if recorded and recorded.materialization == materialization else Generation(self.uuid)


@dataclass(frozen=True)
class Found:
    """What the catalog has under a table identifier."""

    namespace_exists: bool
    table: ExistingTable | None


@dataclass(frozen=True)
class NewColumn:
    """A column that a binding needs."""

    field: str
    name: str
    type: PrimitiveType
    required: bool
    doc: str
    is_indispensable: bool  # its field is always selected, and all rows have their values in it
    former: str = ""  # the column's name when the binding was last applied; "" if the field was not selected then
    is_key: bool = False  # its field is selected as a part of the key

    @property
    def may_identify(self) -> bool:
        """Whether Iceberg allows it as an identifier field."""
        return self.required and self.type not in (FloatType(), DoubleType())

    def __str__(self) -> str:
        return f"{self.name!r} {self.type}{' not null' if self.required else ''}"


@dataclass(frozen=True)
class Target:
    """The table that a binding needs. If `replaces`, a backfill replaces the rows of an older binding."""

    path: TableIdentifier
    owner: Owner
    columns: tuple[NewColumn, ...]
    properties: Mapping[str, str]
    replaces: bool
    settings: BindingSettings = DEFAULT_SETTINGS
    is_new: bool = False  # the task had no such binding before
    other_fields: frozenset[str] = frozenset()  # of the collection, which the binding does not select
    is_for_rejected_rows: bool = False
    format_version: int = FORMAT_VERSIONS[0]  # of the table, if it is created
    keeps_nanoseconds: bool = False  # in new columns of date-times, if the table has version 3

    @property
    def table(self) -> str:
        """The name for errors: namespace.table."""
        return str(self.path)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The names of the columns that identify a row of a new table."""
        return name_identifiers(self.columns, self.settings.identifier_fields)


@dataclass(frozen=True)
class CreateNamespace:
    namespace: str

    @property
    def description(self) -> str:
        return f"create namespace {self.namespace}"


def name_identifiers(columns: Iterable[NewColumn], identifier_fields: IdentifierFields) -> tuple[str, ...]:
    """The names of the columns that identify a row, as Iceberg's identifier fields.

    There are none if a part of the key cannot be one: the other parts do not identify a row.
    """
    keys = [column for column in columns if column.is_key]
    identify = identifier_fields is IdentifierFields.KEY and all(column.may_identify for column in keys)
    return tuple(column.name for column in keys) if identify else ()


@dataclass(frozen=True)
class CreateTable:
    path: TableIdentifier
    columns: tuple[NewColumn, ...]
    properties: Mapping[str, str]
    identifier: tuple[str, ...]  # the names of the columns that identify a row
    partition_by: tuple[Term, ...]  # with the names of columns
    sort_by: tuple[SortTerm, ...]
    format_version: int

    @property
    def description(self) -> str:
        partitions = f", partitioned by {', '.join(map(str, self.partition_by))}" if self.partition_by else ""
        order = f", sorted by {', '.join(map(str, self.sort_by))}" if self.sort_by else ""
        version = f", format version {self.format_version}" if self.format_version != FORMAT_VERSIONS[0] else ""
        columns = _describe_columns(self.columns, self.identifier)
        return f"create table {self.path} {columns}{partitions}{order}{version}"


def _describe_columns(columns: Iterable[NewColumn], identifier: Iterable[str]) -> str:
    return ", ".join(filter(None, [f"({', '.join(map(str, columns))})", _describe_identifier(identifier)]))


def _describe_identifier(identifier: Iterable[str]) -> str:
    key = ", ".join(map(repr, identifier))
    return f"one row for each {key}" if key else ""


@dataclass(frozen=True)
class DropTable:
    path: TableIdentifier
    uuid: str
    reason: str  # why the rows cannot be replaced in place

    @property
    def description(self) -> str:
        table = f"{self.path} with uuid {self.uuid}"
        return f"drop table {table} for a backfill, because {self.reason}; its files stay"


@dataclass(frozen=True)
class StartBackfill:
    """A new generation of the table's rows. Its first commit replaces all rows, and gives the table these columns."""

    target: Target
    former: Generation  # of the rows that will be replaced
    kept_optional: frozenset[str] = field(default=frozenset(), compare=False)  # columns, if their fields are required
    properties: tuple[SetTableProperties, ...] = field(default=(), compare=False)  # which it also sets
    has_older_rows: bool = field(default=False, compare=False)  # from before the task: others may have added them

    @property
    def description(self) -> str:
        return "; ".join((self._describe_rows(), *(each.effect for each in self.properties)))

    def _describe_rows(self) -> str:
        wanted = (
            replace(each, required=each.required and each.name not in self.kept_optional)
            for each in self.target.columns
        )
        columns = _describe_columns(wanted, self.target.identifier)
        if self.target.is_for_rejected_rows:
            return f"delete all rows of table {self.target.table} for a backfill"
        older = ", also those from before the task," if self.has_older_rows else ""
        return (
            f"backfill table {self.target.table}: its rows{older} stay until the first commit, which replaces them all "
            f"and gives the table the columns {columns}"
        )


@dataclass(frozen=True)
class RecordExistingRows:
    """The table records that it has rows which its binding has not stored. So the runtime must load all keys."""

    path: TableIdentifier
    owner: Owner

    @property
    def description(self) -> str:
        return f"alter table {self.path}: record that it has rows from before the task"


@dataclass(frozen=True)
class RenameColumn:
    path: TableIdentifier
    name: str
    new_name: str

    @property
    def description(self) -> str:
        return f"alter table {self.path}: rename column {self.name!r} to {self.new_name!r}"


@dataclass(frozen=True)
class WidenColumn:
    path: TableIdentifier
    name: str
    old_type: IcebergType
    new_type: PrimitiveType

    @property
    def description(self) -> str:
        return f"alter table {self.path}: widen column {self.name!r} from {self.old_type} to {self.new_type}"


@dataclass(frozen=True)
class ConvertColumn:
    """Every value is converted to another type, and rewritten into a new column."""

    path: TableIdentifier
    name: str
    old_type: IcebergType
    column: NewColumn

    @property
    def description(self) -> str:
        return (
            f"alter table {self.path}: convert column {self.name!r} from {self.old_type} to "
            f"{self.column.type}, in new data files"
        )


@dataclass(frozen=True)
class SetAsideColumn:
    """The column is renamed, and keeps the values of existing rows. A new column takes its place for newer rows."""

    path: TableIdentifier
    name: str
    old_type: IcebergType
    kept_as: str
    column: NewColumn

    @property
    def description(self) -> str:
        return (
            f"alter table {self.path}: keep column {self.name!r} {self.old_type} as {self.kept_as!r}, "
            f"and add column {self.column}"
        )


@dataclass(frozen=True)
class AddColumn:
    path: TableIdentifier
    column: NewColumn

    @property
    def description(self) -> str:
        return f"alter table {self.path}: add column {self.column}"


@dataclass(frozen=True)
class MakeOptional:
    path: TableIdentifier
    name: str

    @property
    def description(self) -> str:
        return f"alter table {self.path}: drop not null of column {self.name!r}"


@dataclass(frozen=True)
class SetIdentifierFields:
    """Other columns identify a row, or none do any more."""

    path: TableIdentifier
    names: tuple[str, ...]  # of columns, after their changes

    @property
    def description(self) -> str:
        effect = _describe_identifier(self.names) or "no identifier fields any more"
        return f"alter table {self.path}: {effect}"


# In the order in which they are performed: renames first, so that the others use the new names.
ColumnChange: TypeAlias = RenameColumn | WidenColumn | ConvertColumn | SetAsideColumn | AddColumn | MakeOptional
Alteration: TypeAlias = ColumnChange | SetIdentifierFields | ArrangementChange | SetTableProperties
TableChange: TypeAlias = CreateNamespace | CreateTable | DropTable | StartBackfill | RecordExistingRows | Alteration
