"""Performs the planned changes of tables."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from connector.encoding.rewriting.rewritten_schemas import UnconvertibleError
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.property_changes import CORRECT_CONFIG, find_refused_defaults
from connector.evolution.table_change import (
    AddFirstSnapshot,
    Alteration,
    CreateNamespace,
    CreateTable,
    DropTable,
    RecordExistingRows,
    StartBackfill,
    TableChange,
)
from connector.host.errors import RetryableError, UserError
from connector.iceberg.alteration import Alterer
from connector.iceberg.catalog_entries import describe_found, needs_snapshot
from connector.iceberg.catalog_messages import first_line
from connector.iceberg.commits.backfill import start_backfill
from connector.iceberg.loaded_tables import load_table
from connector.iceberg.metadata.table_arrangement import make_partition_spec, make_sort_order
from connector.iceberg.metadata.table_properties import check_properties
from connector.model.table_identifier import OWNER_PROPERTY, TableIdentifier

log = logging.getLogger(__name__)

ATTEMPTS: Final = 8
NAMESPACE_ATTEMPTS: Final = 3  # that do not find the namespace
NAMESPACE_PAUSE: Final = 1.0  # seconds: a catalog may not show at once what was created
_CORRECT_CATALOG: Final = "The catalog sets it in new tables: correct or remove it there."
# Another process has changed, created or dropped something since the changes were planned, or the catalog has failed.
PLANNED_AGAIN: Final = (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)
_REFUSES_IDENTIFIER_FIELDS: Final = re.compile("identifier (column|field)s?.* not (allowed|supported)", re.IGNORECASE)


def evolve(
    catalog: Catalog,
    path: TableIdentifier,
    location: str | None,
    plan: Callable[[CatalogEntry], Sequence[TableChange]],
    alterer: Alterer,
    absent: CatalogEntry | None = None,
) -> list[TableChange]:
    """Plan the changes of a table and perform them. Plan again when another writer was faster, or when the catalog has
    refused identifier fields, as Databricks does. Return what was done.

    `absent` is what was found if there was no table just now. Then the first attempt does not look again: if another
    process has created the table meanwhile, its creation is refused. RetryableError if others change the table during
    every attempt; UserError if the catalog does not find the namespace after it was found or created.
    """
    performed: list[TableChange] = []
    unknown: list[TableChange] = []  # the answer to their commit was lost
    learned = _Learned(path)
    for _ in range(ATTEMPTS):
        table = None if absent else load_table(catalog, path)
        found = absent or describe_found(catalog, path, table, alterer.task, learned.unconvertible)
        changes = plan(replace(found, refuses_identifier_fields=learned.refuses_identifier_fields))
        performed += (change for change in unknown if change not in changes)
        absent, sent, unknown = None, list[TableChange](), []
        try:
            if table is not None and (alterations := [c for c in changes if isinstance(c, Alteration)]):
                sent = [*alterations]
                alterer.alter(catalog, table, alterations)
                performed += sent
            for change in (change for change in changes if not isinstance(change, Alteration)):
                sent = [change]
                _perform(catalog, table, change, location, learned.refused_properties)
                performed.append(change)
        except (*PLANNED_AGAIN, NoSuchNamespaceError, UnconvertibleError, BadRequestError) as error:
            learned.learn(error)
            if isinstance(error, CommitStateUnknownException):
                unknown = sent
            continue  # changes that were committed are not planned again
        return performed
    raise RetryableError(
        f"Table {path} was not altered in {ATTEMPTS} attempts: each time, another process changed it, or the catalog "
        f"failed. The last answer: {first_line(learned.answer)}. No change is half done. The next start tries again."
    )


@dataclass
class _Learned:
    """What an attempt has shown, for the next ones to plan with."""

    path: TableIdentifier
    answer: str = ""  # the last one that has another process as its cause
    missing: int = 0  # attempts that have not found the namespace
    unconvertible: set[int] = field(default_factory=set)
    refused_properties: set[str] = field(default_factory=set)
    refuses_identifier_fields: bool = False

    def learn(self, error: Exception) -> None:
        """Learn from the error of an attempt. Raise it, or what explains it, if another attempt cannot help."""
        match error:
            case NoSuchNamespaceError():
                self.missing += 1
                if self.missing == NAMESPACE_ATTEMPTS:
                    raise _explain_missing_namespace(self.path, error) from error
                time.sleep(NAMESPACE_PAUSE)
            case UnconvertibleError():
                self.unconvertible |= error.column_ids
            case BadRequestError():
                if self.refuses_identifier_fields or not _REFUSES_IDENTIFIER_FIELDS.search(str(error)):
                    raise error
                log.info("the catalog does not allow identifier fields: table %s goes without them", self.path)
                self.refuses_identifier_fields = True
            case _:
                self.answer = str(error)


def _explain_missing_namespace(path: TableIdentifier, error: Exception) -> UserError:
    return UserError(
        f"Table {path} cannot be created: the catalog says that there is no namespace {path.namespace}, each time "
        f"after it was found or created ({first_line(str(error))}). Give the user of the config's credentials the "
        "permission to read the namespace and to create tables in it. If another program drops the namespace, stop it."
    )


def _perform(
    catalog: Catalog, table: Table | None, change: TableChange, location: str | None, refused: set[str]
) -> None:
    match change:
        case CreateNamespace():
            create_namespace(catalog, change.namespace)
        case CreateTable():
            created = _create_table(catalog, change, location, refused)
            _check_created(created, change.properties)
            add_first_snapshot(created)
        case AddFirstSnapshot():
            add_first_snapshot(catalog.load_table(change.path))
        case DropTable():
            # Not purged, because another table, a branch or a reader may still use the files.
            with suppress(NoSuchTableError):
                catalog.drop_table(change.path)
        case StartBackfill():
            assert table is not None, "only a table that was found is backfilled"
            start_backfill(catalog, table, change)
        case RecordExistingRows():
            with catalog.load_table(change.path).transaction() as transaction:
                transaction.set_properties({OWNER_PROPERTY: change.owner.encode()})


def create_namespace(catalog: Catalog, namespace: str) -> None:
    """Create a namespace, unless it exists."""
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:  # the server may hide it from who has no permission to read it
        return
    except Exception:  # if two processes create it at once, the SQL catalog raises the error of its database
        if not catalog.namespace_exists(namespace):
            raise


def add_first_snapshot(table: Table) -> None:
    """Give a table an empty snapshot, if it has none and needs one."""
    if needs_snapshot(table):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass


def _check_created(table: Table, configured: Mapping[str, str]) -> None:
    """Drop a table again that no session could open, and raise UserError: its catalog has chosen a location in another
    kind of store than the config's directories, or has set a property."""
    try:
        check_properties(table.properties, table.location())
    except ValueError as error:
        table.catalog.drop_table(table.name())
        remedy = CORRECT_CONFIG if any(name in str(error) for name in configured) else _CORRECT_CATALOG
        raise UserError(f"table {TableIdentifier.of(table)}: table property {error}. {remedy}") from error


def _create_table(catalog: Catalog, change: CreateTable, location: str | None, refused: set[str]) -> Table:
    """Create a table, without those default properties that the catalog does not allow. Databricks allows few. Add them
    to those that it has refused before."""
    while True:
        defaults = {name: value for name, value in change.defaults.items() if name not in refused}
        try:
            return _try_to_create(catalog, replace(change, defaults=defaults), location)
        except BadRequestError as error:
            named = find_refused_defaults(defaults, str(error))
            if not named:
                raise
            log.info(
                "the catalog does not allow the table properties %s: table %s is created without them",
                ", ".join(sorted(named)),
                change.path,
            )
            refused |= named


def _try_to_create(catalog: Catalog, change: CreateTable, location: str | None) -> Table:
    # PyIceberg renumbers the fields, so ids are always read from the table. It also pops format-version from the dict.
    fields = [
        NestedField(number, column.name, column.type, required=column.required, doc=column.doc or None)
        for number, column in enumerate(change.columns, start=1)
    ]
    identifier = [field.field_id for field in fields if field.name in change.identifier]
    schema = Schema(*fields, identifier_field_ids=identifier)
    properties = {**change.defaults, **change.properties, "format-version": str(change.format_version)}
    try:
        return catalog.create_table(
            change.path,
            schema,
            location,
            make_partition_spec(schema, change.partition_by),
            make_sort_order(schema, change.sort_by),
            properties,
        )
    except TableAlreadyExistsError as error:
        if load_table(catalog, change.path) is None:
            raise _explain_conflict(change.path, error, is_view=catalog.view_exists(change.path)) from error
        raise


def _explain_conflict(path: TableIdentifier, error: Exception, *, is_view: bool) -> UserError:
    if is_view:
        return UserError(
            f"{path} cannot be created: a view of that name, made by somebody else, has appeared. Choose another table "
            "name, or drop it."
        )
    return UserError(
        f"{path} cannot be created: it is in conflict with something in the catalog, which is neither a table nor a "
        f"view of that name ({first_line(str(error))}). If it is the location, leave out /bucket and /prefix, or "
        "/storage: then the catalog chooses the location. Or choose another prefix. Otherwise, choose another table "
        "name."
    )
