"""Checks that the catalog refuses commits whose assertions are not true. The promise of exactly once depends on it.

The check needs a table with snapshots. A probe table is known by its name, so that a later probe can drop the tables
that killed processes left behind.
"""

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

from connector.checks.endpoint import PROBE_TABLE_PREFIX, SCHEMA, Namespace, new_table_name
from connector.checks.s3_probe import open_bucket
from connector.checks.storage_probe import LONGEST_PROBE
from connector.config.endpoint_config import EndpointConfig
from connector.host.errors import ConnectorError, UserError
from connector.iceberg.catalogs.opening import table_location, translate_errors
from connector.iceberg.commits.commit import commit_snapshot
from connector.iceberg.commits.commit_errors import list_retried_errors
from connector.iceberg.commits.retry_commits import ActionText, retry_commit
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.metadata.table_directories import is_in_table_bucket
from connector.iceberg.metadata.table_updates import new_snapshot, require_unchanged
from connector.iceberg.perform_changes import add_first_snapshot
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage import storage_errors
from connector.storage.file_io import open_file_io
from connector.storage.store_kinds import S3_SCHEMES
from protocol.flow import WHOLE_RANGE

log = logging.getLogger(__name__)

WRITER: Final = WriterId("materialize-iceberg check", "probe", WHOLE_RANGE.key_range)
PROPERTIES: Final = {"comment": "created by materialize-iceberg check, and may be dropped"}
TEXT: Final = ActionText("change a probe table", "a probe table was changed")


@dataclass(frozen=True)
class _FalseAssertion:
    """The requirements of a commit that has to be refused, and the table that it is based on."""

    text: str  # what the commit asserts
    base: Table
    requirements: tuple[TableRequirement, ...]


def try_false_commits(namespace: Namespace) -> int:
    """Commit to a new table, and return how many commits with false assertions were refused. UserError if one was
    accepted, or if there is no namespace for the table. The table is dropped."""
    if not namespace.exists:
        raise UserError(
            f"the namespace {namespace.name} does not exist yet, and the probe table needs it. Create it in the "
            "catalog, or publish the task, and repeat the check."
        )
    config, catalog = namespace.endpoint.config, namespace.endpoint.catalog
    with suppress(ConnectorError), translate_errors(config):  # credentials that may not list may still commit
        _drop_abandoned(config, catalog, namespace.name)
    with translate_errors(config), _probe_table(config, catalog, namespace.name) as path:
        return _try_false_assertions(catalog, path)


@contextmanager
def _probe_table(config: EndpointConfig, catalog: Catalog, namespace: str) -> Iterator[TableIdentifier]:
    """Create a table, and drop it at the end. It may exist even if the catalog's answer says otherwise."""
    path = TableIdentifier(namespace, new_table_name())
    try:
        add_first_snapshot(
            catalog.create_table(path, SCHEMA, table_location(config, path), properties=dict(PROPERTIES))
        )
        yield path
    finally:
        _drop(config, catalog, path)


def _try_false_assertions(catalog: Catalog, path: TableIdentifier) -> int:
    older = [_commit(catalog, path), _commit(catalog, path)]
    table = catalog.load_table(path)
    snapshot = _write_snapshot(table)  # right in all respects: only the assertions are false
    updates = new_snapshot(table, snapshot)
    assertions = _list_false_assertions(older, table)
    for assertion in assertions:
        if _is_accepted(catalog, path, assertion, updates, snapshot.snapshot_id):
            raise UserError(
                f"the catalog accepted a commit which asserts that {assertion.text}. This was not true, so the catalog "
                "does not check what commits assert. It does not guard a table against two writers: if a replaced "
                "process of a task still runs, or another program changes the same table, a commit can undo another "
                "one without an error. Then rows are lost, or are in the table twice. Use a catalog, or a version of "
                "this one, that checks the requirements of each commit, as Iceberg's REST specification demands."
            )
    return len(assertions)


def _commit(catalog: Catalog, path: TableIdentifier) -> Table:
    """Commit a snapshot without rows. Return the table as it was before."""

    def attempt() -> Table:
        table = catalog.load_table(path)
        commit_snapshot(catalog, table, _write_snapshot(table), PROPERTIES)
        return table

    return retry_commit(path, TEXT, attempt)


def _write_snapshot(table: Table) -> Snapshot:
    with storage_errors.translate_errors(table.location()):
        return SnapshotWriter().keep_files(table, WRITER, {})


def _list_false_assertions(older: Sequence[Table], table: Table) -> list[_FalseAssertion]:
    """List all that the commits of a task assert, each once with something that is not true."""
    first, second = older
    falsify = partial(_falsify, table)
    return [
        _FalseAssertion(f"the table has {_describe_main(first)}", first, require_unchanged(first)),
        _FalseAssertion("an older snapshot is the current one", second, require_unchanged(second)),
        falsify("the table has another UUID", AssertTableUUID(uuid=uuid.uuid4())),
        falsify(
            "another schema is the current one",
            AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id + 1),
        ),
        falsify(
            "another column id is the last one",
            AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id + 1),
        ),
    ]


def _describe_main(table: Table) -> str:
    return "only one snapshot" if table.current_snapshot() else "no snapshot"


def _falsify(table: Table, text: str, wrong: TableRequirement) -> _FalseAssertion:
    requirements = (wrong if isinstance(each, type(wrong)) else each for each in require_unchanged(table))
    return _FalseAssertion(text, table, tuple(requirements))


def _is_accepted(
    catalog: Catalog,
    path: TableIdentifier,
    assertion: _FalseAssertion,
    updates: tuple[TableUpdate, ...],
    snapshot_id: int,
) -> bool:
    try:
        after = catalog.commit_table(assertion.base, assertion.requirements, updates).metadata
    except CommitFailedException:
        return False
    except list_retried_errors():  # the commit may have been done
        after = catalog.load_table(path).metadata
    return after.snapshot_by_id(snapshot_id) is not None


def _drop(config: EndpointConfig, catalog: Catalog, path: TableIdentifier) -> None:
    """Drop a probe table and delete its files. If that fails, a warning says so: a task does not need to do it."""
    try:
        with suppress(NoSuchTableError), translate_errors(config):
            table = catalog.load_table(path)
            catalog.drop_table(path)
            _delete_files(table)
    except ConnectorError as error:
        log.warning("the probe table %s is not gone with all of its files: %s Drop it by hand.", path, error)


def _delete_files(table: Table) -> None:
    """Delete the directory of a dropped probe table, if its name shows that it is this table's alone."""
    directory = table.location().rstrip("/")
    is_alone = table.name()[-1] in directory or str(table.metadata.table_uuid) in directory
    if is_in_table_bucket(directory) or not is_alone:
        return
    address, properties = urlsplit(directory), table.io.properties
    if address.scheme in S3_SCHEMES:
        # Not by PyArrow: it would write an empty object in the place of the directory.
        with open_bucket(address.netloc, address.path.lstrip("/"), properties) as bucket:
            for name, _ in bucket.list_files(""):
                bucket.delete(name)
        return
    arrow = open_file_io(properties).arrow
    scheme, netloc, root = arrow.parse_location(directory, properties)
    with storage_errors.translate_errors(directory), suppress(FileNotFoundError):
        arrow.fs_by_scheme(scheme, netloc).delete_dir(root)


def _drop_abandoned(config: EndpointConfig, catalog: Catalog, namespace: str) -> None:
    """Drop the probe tables of killed processes."""
    for identifier in catalog.list_tables(namespace):
        path = TableIdentifier(namespace, identifier[-1])
        if re.fullmatch(f"{PROBE_TABLE_PREFIX}[0-9a-f]{{32}}", path.name):
            with suppress(NoSuchTableError):  # another probe may have dropped it
                changed_at = datetime.fromtimestamp(catalog.load_table(path).metadata.last_updated_ms / 1000, UTC)
                if datetime.now(UTC) - changed_at > LONGEST_PROBE:
                    _drop(config, catalog, path)
