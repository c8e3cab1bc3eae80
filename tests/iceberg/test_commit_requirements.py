"""Each commit of a snapshot asserts the table as it was read. A REST server takes everything else that changes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
)
from pyiceberg.types import LongType, StringType

from connector.evolution.plan_changes import plan_changes
from connector.evolution.target import NewColumn, Target
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.rewrite_manifests import rewrite_manifests
from connector.iceberg.perform_changes import evolve
from connector.model.table_identifier import Owner
from support.bindings import PATH
from support.rows.staged_rows import WRITER, staged
from support.tables.altered_tables import ID, QTY, filled_table, wanted
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import alterer

OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)
NEXT: Final = Owner(WRITER.materialization, "shop%2Forders.v9")


def transact(catalog: Catalog) -> None:
    commit_all_or_raise(catalog, [staged(catalog, {"id": 9, "qty": 9}, writer=WRITER)])


def backfill(catalog: Catalog, *columns: NewColumn) -> None:
    target = Target(PATH, NEXT, (wanted("id", LongType()), *columns), {}, True)
    evolve(catalog, PATH, None, partial(plan_changes, target=target), alterer())


def backfill_twice(catalog: Catalog) -> None:
    backfill(catalog)
    backfill(catalog, wanted("note", StringType()))


COMMITS: Final[dict[str, Callable[[Catalog], object]]] = {
    "a transaction": transact,
    "a compaction": lambda catalog: compact(catalog, PATH),
    "a merge of manifests": lambda catalog: rewrite_manifests(catalog, PATH, OWNER),
    "a backfill, and new columns while it waits for rows": backfill_twice,
}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    with filled_table(catalog, ID, QTY).transaction() as transaction:
        transaction.set_properties({"flow.owner": OWNER.encode(), **EAGER})
    for _ in range(3):
        transact(catalog)
    return catalog


@pytest.mark.parametrize("perform", COMMITS.values(), ids=COMMITS)
def test_a_commit_asserts_the_table_its_columns_and_its_rows(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, perform: Callable[[Catalog], object]
) -> None:
    """Another engine may take the main branch back to an older snapshot, which no other check notices."""
    commit_table, sent = SqlCatalog.commit_table, list[tuple[Any, ...]]()

    def listen(self: SqlCatalog, table: Table, requirements: tuple[Any, ...], updates: Any) -> Any:
        sent.append((self.load_table(PATH).metadata, requirements))
        return commit_table(self, table, requirements, updates)

    monkeypatch.setattr(SqlCatalog, "commit_table", listen)
    perform(catalog)
    assert sent
    for before, asserted in sent:
        for requirement in (
            AssertTableUUID(uuid=before.table_uuid),
            AssertRefSnapshotId(ref="main", snapshot_id=before.current_snapshot_id),
            AssertCurrentSchemaId(current_schema_id=before.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=before.last_column_id),
        ):
            assert requirement in asserted
