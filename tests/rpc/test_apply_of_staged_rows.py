"""Rows that are staged when apply alters their tables are committed before."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import encode_added
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from protocol import response
from rpc.applied_bindings import AWAY, ORDERS, RETURNS, V1, applied, backfilled, before, planned
from support.bindings import PATH
from support.bindings import materialization_binding as binding
from support.rows.staged_files import removed, removed_from_state, stage
from support.rows.staged_rows import WRITER, staged
from support.tables.local_tables import ids_of, local_catalog


def test_staged_transactions_are_part_of_the_table_before_it_is_altered(tmp_path: Path) -> None:
    old = binding(ORDERS)
    applied(tmp_path, old)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    answer = applied(tmp_path, binding(ORDERS, "note"), last=before(old), state=encode_added([staged]))
    assert answer.action_description.splitlines() == [
        "finish 1 staged transactions of table shop.orders (2 rows)",
        "alter table shop.orders: add column 'note' string",
    ]
    assert ids_of(catalog, PATH) == [1, 2]
    snapshots = catalog.load_table(PATH).snapshots()
    assert [snapshot.schema_id for snapshot in snapshots] == [0]
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(staged)


def test_the_staged_rows_of_a_backfill_bring_the_column_by_which_later_ones_are_partitioned(tmp_path: Path) -> None:
    old = binding(ORDERS, "note", backfill=1)
    applied(tmp_path, binding(ORDERS))
    applied(tmp_path, old, last=before(binding(ORDERS)))
    catalog, writer = local_catalog(tmp_path), replace(WRITER, state_key=old.state_key)
    first = staged(catalog, {"id": 1, "flow_document": "{}", "note": "a"}, writer=writer)
    new = structs.replace(old, resource_config={**old.resource_config, "partition_by": "note"})
    answer = applied(tmp_path, new, last=before(old), state=encode_added([first]))
    assert answer.action_description.splitlines() == [
        "finish 1 staged transactions of table shop.orders (1 rows)",
        "alter table shop.orders: partition new rows by note",
    ]
    assert ids_of(catalog, PATH) == [1]


def test_a_staged_transaction_that_a_crash_left_in_the_state_lands_once(tmp_path: Path) -> None:
    old = binding(ORDERS)
    applied(tmp_path, old)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    commit_all_or_raise(catalog, [staged])
    applied(tmp_path, binding(ORDERS, "note"), last=before(old), state=encode_added([staged]))
    assert ids_of(catalog, PATH) == [1, 2]


def test_a_table_whose_staged_files_are_gone_is_not_altered_and_can_be_read(tmp_path: Path) -> None:
    old = binding(ORDERS)
    applied(tmp_path, old)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    recorded = encode_added([staged])
    with removed(*staged.locations):
        with pytest.raises(UserError, match="1 staged file\\(s\\) are gone"):
            applied(tmp_path, binding(ORDERS, "note"), last=before(old), state=recorded)
        assert ids_of(catalog, PATH) == []
    applied(tmp_path, binding(ORDERS, "note"), last=before(old), state=recorded)
    assert ids_of(catalog, PATH) == [1, 2]


def test_staged_transactions_of_a_table_that_is_not_altered_wait_for_the_session(tmp_path: Path) -> None:
    bound = binding(ORDERS)
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    assert applied(tmp_path, bound, last=before(bound), state=encode_added([staged])) == response.Applied()
    assert ids_of(catalog, PATH) == []


def test_no_new_table_gets_into_the_way_of_rows_that_are_staged_for_the_old_one(tmp_path: Path) -> None:
    bound = binding(ORDERS)
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    state = encode_added([stage(catalog, PATH, WRITER, 1, 2)])
    catalog.rename_table(PATH, AWAY)
    attempts: list[Callable[..., object]] = [applied, planned]
    for attempt in attempts:
        with pytest.raises(UserError, match=r"^table shop\.orders is gone, and the task's state names 2 rows"):
            attempt(tmp_path, bound, RETURNS, last=before(bound), state=state)
    assert not catalog.table_exists(PATH)
    assert not catalog.table_exists(("shop", "returns"))

    catalog.rename_table(AWAY, PATH)
    noted = binding(ORDERS, "note")
    assert applied(tmp_path, noted, last=before(bound), state=state).state is not None
    assert ids_of(catalog, PATH) == [1, 2]


def test_a_table_of_before_the_backfill_for_which_rows_are_staged_is_said_to_be_older(tmp_path: Path) -> None:
    bound, writer = binding(ORDERS, backfill=1), replace(WRITER, state_key="shop%2Forders.v1")
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    owner = Owner(WRITER.materialization, WRITER.state_key)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({OWNER_PROPERTY: owner.encode()})
    staged = replace(stage(catalog, PATH, writer, 1, 2), table_uuid=str(uuid.uuid4()))
    attempts: list[Callable[..., object]] = [applied, planned]
    for attempt in attempts:
        with pytest.raises(UserError, match=r"^table shop\.orders is older than the backfill"):
            attempt(tmp_path, bound, last=before(bound), state=encode_added([staged]))


def test_rows_that_were_staged_after_a_backfill_on_an_older_copy_are_dropped_by_another_one(tmp_path: Path) -> None:
    bound = binding(ORDERS)
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, replace(WRITER, state_key=V1), 1, 2)
    backfilled(tmp_path)
    state, current = encode_added([staged]), binding(ORDERS, backfill=1)
    attempts: list[Callable[..., object]] = [applied, planned]
    for attempt in attempts:
        with pytest.raises(UserError, match=r"2 rows that are staged for the old table .* Backfill the binding again"):
            attempt(tmp_path, current, last=before(current), state=state)
    answer = applied(tmp_path, binding(ORDERS, backfill=2), last=before(current), state=state)
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(staged)


def test_a_new_table_that_is_in_the_way_is_left_alone_and_named(tmp_path: Path) -> None:
    bound = binding(ORDERS)
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    state = encode_added([stage(catalog, PATH, WRITER, 1, 2)])
    catalog.rename_table(PATH, AWAY)
    applied(tmp_path, bound, last=before(bound))  # the runtime tells no state
    new = catalog.load_table(PATH)
    attempts: list[Callable[..., object]] = [applied, planned]
    for attempt in attempts:
        with pytest.raises(UserError, match=f"another table now .uuid {new.metadata.table_uuid}.*first rename or drop"):
            attempt(tmp_path, binding(ORDERS, "note"), last=before(bound), state=state)
    assert catalog.load_table(PATH).metadata == new.metadata
