"""The changes of tables, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, PrimitiveType

from connector.config.terms import SortTerm, Term
from connector.config.values import FORMAT_VERSIONS
from connector.evolution.arrangement_changes import ArrangementChange
from connector.evolution.property_changes import SetTableProperties
from connector.evolution.target import NewColumn, Target
from connector.model.table_identifier import Generation, Owner, TableIdentifier


@dataclass(frozen=True)
class CreateNamespace:
    namespace: str

    @property
    def description(self) -> str:
        return f"create namespace {self.namespace}"


@dataclass(frozen=True)
class CreateTable:
    path: TableIdentifier
    columns: tuple[NewColumn, ...]
    properties: Mapping[str, str]
    defaults: Mapping[str, str]  # further properties, without which the table can be
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
    schema: Schema = field(compare=False)  # of that generation: columns that do not change keep their ids
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
            return f"delete all rows of table {self.target.path} for a backfill"
        older = ", also those from before the task," if self.has_older_rows else ""
        return (
            f"backfill table {self.target.path}: its rows{older} stay until the first commit, which replaces them all "
            f"and gives the table the columns {columns}"
        )


@dataclass(frozen=True)
class RecordExistingRows:
    """The table records that it has rows which its binding has not stored under its state key. So the runtime must load
    all keys."""

    path: TableIdentifier
    owner: Owner

    @property
    def description(self) -> str:
        return f"alter table {self.path}: record that it has older rows"


@dataclass(frozen=True)
class AddFirstSnapshot:
    """The table gets a snapshot without rows, because its catalog does not check commits to a table without one.

    A new table gets it when it is created, unless the process dies before.
    """

    path: TableIdentifier

    @property
    def description(self) -> str:
        return f"alter table {self.path}: add an empty snapshot"


@dataclass(frozen=True)
class RenameColumn:
    name: str
    new_name: str

    @property
    def effect(self) -> str:
        return f"rename column {self.name!r} to {self.new_name!r}"


@dataclass(frozen=True)
class WidenColumn:
    name: str
    old_type: IcebergType
    new_type: PrimitiveType

    @property
    def effect(self) -> str:
        return f"widen column {self.name!r} from {self.old_type} to {self.new_type}"


@dataclass(frozen=True)
class ConvertColumn:
    """Every value is converted to another type, and rewritten into a new column."""

    name: str
    old_type: IcebergType
    column: NewColumn

    @property
    def effect(self) -> str:
        return f"convert column {self.name!r} from {self.old_type} to {self.column.type}, in new data files"


@dataclass(frozen=True)
class SetAsideColumn:
    """The column is renamed, and keeps the values of existing rows. A new column takes its place for newer rows."""

    name: str
    old_type: IcebergType
    kept_as: str
    column: NewColumn

    @property
    def effect(self) -> str:
        return f"keep column {self.name!r} {self.old_type} as {self.kept_as!r}, and add column {self.column}"


@dataclass(frozen=True)
class AddColumn:
    column: NewColumn

    @property
    def effect(self) -> str:
        return f"add column {self.column}"


@dataclass(frozen=True)
class MakeOptional:
    name: str

    @property
    def effect(self) -> str:
        return f"drop not null of column {self.name!r}"


@dataclass(frozen=True)
class SetIdentifierFields:
    """Other columns identify a row, or none do any more."""

    names: tuple[str, ...]  # of columns, after their changes

    @property
    def effect(self) -> str:
        return _describe_identifier(self.names) or "no identifier fields any more"


# In the order in which they are performed: renames first, so that the others use the new names.
ColumnChange: TypeAlias = RenameColumn | WidenColumn | ConvertColumn | SetAsideColumn | AddColumn | MakeOptional
Alteration: TypeAlias = ColumnChange | SetIdentifierFields | ArrangementChange | SetTableProperties
TableChange: TypeAlias = (
    CreateNamespace | CreateTable | AddFirstSnapshot | DropTable | StartBackfill | RecordExistingRows | Alteration
)


def describe_change(change: TableChange, table: TableIdentifier) -> str:
    """Describe a change of this table for people."""
    return f"alter table {table}: {change.effect}" if isinstance(change, Alteration) else change.description
