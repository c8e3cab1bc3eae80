"""Apply begins backfills: what becomes of the rows, of what was staged, and of a crash in between."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from connector.config.values import ALWAYS_DROP as DROP
from connector.host.errors import UserError
from connector.iceberg.bound_table import bind_all
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.binding import KeyPart, RowSettings, UpdateMode, Updates
from connector.model.state import LocatedRowsFile, StagedCommit, encode_added
from connector.model.table_identifier import Owner, TableIdentifier
from protocol import response
from protocol.flow import WHOLE_RANGE, MaterializationBinding
from rpc.applied_bindings import AWAY, ORDERS, RETAIN, V0, V1, applied, backfilled, before
from support.bindings import MATERIALIZATION, PATH
from support.bindings import materialization_binding as binding
from support.rows.staged_files import listed, removed, removed_from_state, stage
from support.rows.staged_rows import WRITER, staged
from support.tables.local_tables import ids_of, local_catalog


def test_a_backfill_replaces_the_table_and_drops_what_was_staged_for_the_old_one(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    old = catalog.load_table(PATH)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    away = replace(WRITER, state_key="shop%2Felsewhere.v0")
    elsewhere = replace(stage(catalog, PATH, away, 3), path=TableIdentifier("shop", "elsewhere"))
    answer = backfilled(tmp_path, state=encode_added([staged, elsewhere]))
    assert answer.action_description.splitlines() == [
        "drop 1 staged transactions of table shop.orders (2 rows)",
        "backfill table shop.orders: its rows stay until the first commit, which replaces them all and gives the table "
        "the columns ('id' long not null)",
    ]
    assert catalog.load_table(PATH).metadata.table_uuid == old.metadata.table_uuid
    assert ids_of(catalog, PATH) == []
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(staged)


@pytest.mark.parametrize("has_list", [False, True])
def test_a_backfill_is_a_way_out_where_staged_files_are_gone(tmp_path: Path, has_list: bool) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    if has_list:
        staged = listed(catalog.load_table(PATH), staged)
    with removed(*staged.locations):
        answer = backfilled(tmp_path, state=encode_added([staged]))
    assert ids_of(catalog, PATH) == []
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(staged)


def test_a_backfill_is_a_way_out_where_staged_rows_would_lose_their_documents(tmp_path: Path) -> None:
    """The table has no rows yet, so its column of documents could be added anew. But the staged rows are not of it."""
    with_document = binding(ORDERS, document="flow_document")
    applied(tmp_path, with_document)
    catalog = local_catalog(tmp_path)
    updates, none = Updates((KeyPart(1, "/id"),), document_id=2), LocatedRowsFile(None, 0, None)
    commit = replace(staged(catalog, {"id": 1, "flow_document": "{}"}), updates=updates, located=none)
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("flow_document")
    recorded = encode_added([commit])
    with pytest.raises(UserError, match="has dropped column 'flow_document', which has the root document"):
        applied(tmp_path, with_document, last=before(with_document), state=recorded)
    assert catalog.load_table(PATH).current_snapshot() is None
    again = binding(ORDERS, document="flow_document", backfill=1)
    answer = applied(tmp_path, again, last=before(with_document), state=recorded)
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(commit)


def test_a_backfill_deletes_what_was_staged_for_the_old_table_and_no_file_that_had_landed(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    landed = stage(catalog, PATH, WRITER, 1)
    commit_all_or_raise(catalog, [landed])
    waiting = stage(catalog, PATH, WRITER, 2, prev=landed.next)
    state = encode_added([landed, waiting])
    backfilled(tmp_path, state=state)
    assert [exists(commit) for commit in (landed, waiting)] == [True, False]


def test_a_table_that_cannot_be_read_can_be_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    old = catalog.load_table(PATH)
    landed = stage(catalog, PATH, WRITER, 1)
    commit_all_or_raise(catalog, [landed])
    for manifest_list in Path(old.location().removeprefix("file://")).rglob("snap-*.avro"):
        manifest_list.unlink()
    waiting = stage(catalog, PATH, WRITER, 2, prev=landed.next)
    backfilled(tmp_path, state=encode_added([waiting]))
    assert ids_of(catalog, PATH) == []
    assert exists(waiting)
    assert "files that were staged before the backfill were not deleted" in caplog.text


def exists(staged: StagedCommit) -> bool:
    return all(Path(location.removeprefix("file://")).exists() for location in staged.locations)


def test_a_backfill_that_crashed_before_its_answer_replaces_nothing_twice_but_cleans_the_state(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    state = encode_added([stage(catalog, PATH, WRITER, 1, 2)])
    first = backfilled(tmp_path, state=state)
    new = stage(catalog, PATH, replace(WRITER, state_key=V1), 3)
    commit_all_or_raise(catalog, [new])
    again = backfilled(tmp_path, state=state)
    assert again.state == first.state
    assert ids_of(catalog, PATH) == [3]
    assert backfilled(tmp_path) == response.Applied()


def test_a_backfill_that_crashed_between_drop_and_creation_is_finished(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    state = encode_added([stage(catalog, PATH, WRITER, 1, 2)])
    catalog.drop_table(PATH)
    answer = backfilled(tmp_path, state=state)
    assert Owner.of(catalog.load_table(PATH).properties) == Owner(MATERIALIZATION, V1)
    assert answer.state is not None


def test_a_backfill_that_keeps_the_rows_finishes_what_was_staged(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    answer = backfilled(tmp_path, feature_flags=RETAIN, state=encode_added([staged]))
    assert answer.action_description.splitlines() == [
        "finish 1 staged transactions of table shop.orders (2 rows)",
        "alter table shop.orders: record that it has older rows",
    ]
    assert ids_of(catalog, PATH) == [1, 2]
    assert answer.state is not None


@pytest.mark.parametrize(("flags", "is_dropped"), [(DROP, True), (f"{DROP},{RETAIN}", False), (f"no_{DROP}", False)])
def test_a_backfill_drops_the_table_if_a_feature_flag_says_so_and_none_keeps_the_rows(
    tmp_path: Path, flags: str, is_dropped: bool
) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    uuid = catalog.load_table(PATH).metadata.table_uuid
    applied(tmp_path, binding(ORDERS), last=before(binding(ORDERS)), feature_flags=flags)
    assert catalog.load_table(PATH).metadata.table_uuid == uuid, "there is no backfill"
    answer = backfilled(tmp_path, feature_flags=flags)
    assert ("drop table shop.orders" in answer.action_description) is is_dropped
    assert (catalog.load_table(PATH).metadata.table_uuid != uuid) is is_dropped
    assert backfilled(tmp_path, feature_flags=flags) == response.Applied()


def test_rows_that_a_backfill_kept_are_kept_when_the_flag_goes(tmp_path: Path) -> None:
    applied(tmp_path, binding(ORDERS))
    catalog = local_catalog(tmp_path)
    uuid = catalog.load_table(PATH).metadata.table_uuid
    assert backfilled(tmp_path, feature_flags=RETAIN) != response.Applied()
    assert backfilled(tmp_path, feature_flags=RETAIN) == response.Applied()
    current = binding(ORDERS, backfill=1)
    assert applied(tmp_path, current, last=before(current)) == response.Applied()
    assert catalog.load_table(PATH).metadata.table_uuid == uuid


@pytest.mark.parametrize("backfill", [0, 2])
def test_rows_that_a_backfill_kept_are_replaced_by_another_one_whatever_its_counter(
    tmp_path: Path, backfill: int
) -> None:
    applied(tmp_path, binding(ORDERS))
    backfilled(tmp_path, feature_flags=RETAIN)
    last = before(binding(ORDERS, backfill=1))
    other = binding(ORDERS, backfill=backfill)
    assert applied(tmp_path, other, last=last).action_description.startswith("backfill table shop.orders")
    assert applied(tmp_path, other, last=last) == response.Applied()


def test_a_backfill_that_keeps_the_rows_loads_all_keys_also_under_an_earlier_counter(tmp_path: Path) -> None:
    """The runtime remembers the greatest key of each state key, and sends no Load for a greater one."""
    first, second = (
        structs.replace(
            binding(ORDERS, document="flow_document", backfill=backfill),
            resource_config={"table": "orders", "delta_updates": False},
            delta_updates=False,
        )
        for backfill in (0, 1)
    )
    catalog, standard = local_catalog(tmp_path), RowSettings(updates=UpdateMode.KEEP_DELETED)

    def loads_all_keys(bound: MaterializationBinding) -> bool:
        [table] = bind_all(catalog, before(bound), WHOLE_RANGE.key_range, [standard])
        return table.may_have_other_rows

    applied(tmp_path, first)
    assert not loads_all_keys(first)
    applied(tmp_path, second, last=before(first), feature_flags=RETAIN)
    assert loads_all_keys(second)
    applied(tmp_path, first, last=before(second), feature_flags=RETAIN)
    assert loads_all_keys(first)
    assert Owner.of(catalog.load_table(PATH).properties) == Owner(MATERIALIZATION, V0, has_older_rows=True)


def test_a_binding_that_was_created_again_owns_the_table_that_it_had_before(tmp_path: Path) -> None:
    """An earlier owner would mean that the catalog has answered with the table as it was before a backfill."""
    applied(tmp_path, binding(ORDERS))
    catalog, again = local_catalog(tmp_path), binding(ORDERS, backfill=1)
    assert applied(tmp_path, again).action_description == "alter table shop.orders: record that it has older rows"
    assert Owner.of(catalog.load_table(PATH).properties) == Owner(MATERIALIZATION, V1, has_older_rows=True)
    assert applied(tmp_path, again) == response.Applied()


@pytest.mark.parametrize("flags", ["", RETAIN])
@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_a_backfill_goes_on_where_the_table_is_gone(tmp_path: Path, is_in_the_way: bool, flags: str) -> None:
    bound = binding(ORDERS)
    applied(tmp_path, bound)
    catalog = local_catalog(tmp_path)
    staged = stage(catalog, PATH, WRITER, 1, 2)
    catalog.rename_table(PATH, AWAY)
    if is_in_the_way:
        applied(tmp_path, bound)
    answer = backfilled(tmp_path, feature_flags=flags, state=encode_added([staged]))
    assert answer.state is not None
    assert answer.state.updated == removed_from_state(staged)
    assert ids_of(catalog, PATH) == []
    assert catalog.table_exists(AWAY)
