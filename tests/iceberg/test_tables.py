"""What apply makes of tables: they are created, changed and dropped in the Local catalog."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.types import LongType, StringType

from connector.evolution.existing_table import CatalogEntry
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import (
    AddColumn,
    AddFirstSnapshot,
    CreateNamespace,
    CreateTable,
    MakeOptional,
    StartBackfill,
    TableChange,
    describe_change,
)
from connector.evolution.target import NewColumn, Target
from connector.host.errors import RetryableError, UserError
from connector.iceberg.loaded_tables import load_table
from connector.iceberg.perform_changes import ATTEMPTS, evolve
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH
from support.snapshots import check_text
from support.tables.found_tables import find
from support.tables.local_tables import (
    alterer,
    drop_types_of_tables,
    foreign_table,
    local_catalog,
    turn_tables_into_views,
)
from support.tables.planted_faults import Send, do_first, lose_answer, plant, refuse

OWNER = Owner(MATERIALIZATION, "shop%2Forders.v0")
ID = NewColumn("id", "id", LongType(), required=True, doc="The key", is_indispensable=True)
CREATED_NAMES = ("_meta/op", "with space", "123", "dot.ted")
ADDED_NAMES = ("$ %s '\"` {}", "💩", "ß" * 255, "a.b")


def optional(*names: str) -> tuple[NewColumn, ...]:
    return tuple(NewColumn(name, name, StringType(), required=False, doc="", is_indispensable=False) for name in names)


def target(
    *columns: NewColumn, owner: Owner = OWNER, replaces: bool = False, properties: dict[str, str] | None = None
) -> Target:
    return Target(PATH, owner, (ID, *columns), properties or {}, replaces)


def fit(catalog: Catalog, wanted: Target, location: str | None = None) -> list[TableChange]:
    return evolve(catalog, PATH, location, partial(plan_changes, target=wanted), alterer())


def names(catalog: Catalog) -> list[str]:
    return [field.name for field in catalog.load_table(PATH).schema().fields]


def test_what_does_not_exist_is_found_as_missing(catalog: Catalog) -> None:
    assert find(catalog, PATH) == CatalogEntry(namespace_exists=False, table=None)
    catalog.create_namespace("shop")
    assert find(catalog, PATH) == CatalogEntry(namespace_exists=True, table=None)


def test_a_table_is_created_as_planned(catalog: Catalog, tmp_path: Path) -> None:
    location = f"file://{tmp_path}/elsewhere"
    done = fit(catalog, target(*optional("note"), properties={"color": "red", "format-version": "1"}), location)
    assert [type(change) for change in done] == [CreateNamespace, CreateTable]
    table = catalog.load_table(PATH)
    assert table.metadata.format_version == 2
    assert table.location() == location
    assert table.spec().is_unpartitioned()
    assert table.properties["color"] == "red"
    assert table.properties["write.metadata.previous-versions-max"] == "20"
    assert "format-version" not in table.properties
    assert Owner.of(table.properties) == OWNER
    key, note = table.schema().fields
    assert (key.field_type, key.required, key.doc) == (LongType(), True, "The key")
    assert (note.field_type, note.required, note.doc) == (StringType(), False, None)


def test_what_fits_already_is_left_alone(catalog: Catalog) -> None:
    fit(catalog, target())
    before = catalog.load_table(PATH).metadata_location
    assert fit(catalog, target()) == []
    assert catalog.load_table(PATH).metadata_location == before


def test_all_alterations_of_a_table_are_one_commit(catalog: Catalog) -> None:
    fit(catalog, target())
    relaxed = Target(PATH, OWNER, optional("a", "b"), {}, replaces=False)
    done = fit(catalog, relaxed)
    assert done == [*(AddColumn(column) for column in optional("a", "b")), MakeOptional("id")]
    table = catalog.load_table(PATH)
    assert [(field.name, field.required) for field in table.schema().fields] == [
        ("id", False),
        ("a", False),
        ("b", False),
    ]
    assert len(table.metadata.metadata_log) == 1


def test_any_name_can_be_created_added_and_made_optional(catalog: Catalog) -> None:
    required = tuple(
        NewColumn(name, name, LongType(), required=True, doc="", is_indispensable=False) for name in CREATED_NAMES
    )
    fit(catalog, target(*required))
    fit(catalog, target(*optional(*ADDED_NAMES)))
    schema = catalog.load_table(PATH).schema()
    assert [field.name for field in schema.fields] == ["id", *CREATED_NAMES, *ADDED_NAMES]
    assert [field.required for field in schema.fields] == [True] + [False] * len(CREATED_NAMES + ADDED_NAMES)


def test_a_backfilled_table_is_the_same_table_and_stays_where_it_is(catalog: Catalog, tmp_path: Path) -> None:
    location = f"file://{tmp_path}/elsewhere"
    fit(catalog, target(*optional("old")), location)
    old = catalog.load_table(PATH)
    newer = target(owner=Owner(MATERIALIZATION, "shop%2Forders.v1"), replaces=True)
    done = fit(catalog, newer, location)
    assert [type(change) for change in done] == [StartBackfill]
    new = catalog.load_table(PATH)
    assert (new.metadata.table_uuid, new.location()) == (old.metadata.table_uuid, location)
    assert names(catalog) == ["id", "old"]
    assert fit(catalog, newer, location) == []


def test_a_change_by_somebody_else_in_between_is_met_by_a_new_plan(tmp_path: Path, catalog: Catalog) -> None:
    fit(catalog, target())
    plans = 0

    def plan(found: CatalogEntry) -> Sequence[TableChange]:
        nonlocal plans
        plans += 1
        if plans == 1:
            fit(local_catalog(tmp_path), target(*optional("theirs", "both")))
        return plan_changes(found, target(*optional("theirs", "both", "ours")))

    assert evolve(catalog, PATH, None, plan, alterer()) == [AddColumn(*optional("ours"))]
    assert plans == 2
    assert names(catalog) == ["id", "theirs", "both", "ours"]


def test_a_table_whose_catalog_puts_it_in_another_kind_of_store_than_its_files_is_dropped_again(
    catalog: Catalog,
) -> None:
    with pytest.raises(
        UserError,
        match=r"table shop\.orders: table property write\.data\.path .* same kind .* \(file\).*of the binding",
    ):
        fit(catalog, target(properties={"write.data.path": "s3://elsewhere/orders"}))
    assert not catalog.table_exists(PATH)


def test_a_new_table_with_a_property_of_its_catalog_that_no_session_takes_is_dropped_again(catalog: Catalog) -> None:
    def add_key(send: Send) -> Any:
        *arguments, properties = send.args
        return send.func(*arguments, {**properties, "encryption.key-id": "k1"})

    plant(catalog, [add_key], "create_table")
    with pytest.raises(UserError) as error:
        fit(catalog, target(properties={"color": "red"}))
    check_text("commit_errors", "the catalog encrypts new tables", str(error.value))
    assert not catalog.table_exists(PATH)


def test_changes_are_described_also_if_the_answer_to_their_commit_is_lost(catalog: Catalog) -> None:
    unknown = CommitStateUnknownException("500")
    fit(catalog, target())
    wanted = target(*optional("note"))
    plant(catalog, [refuse(CommitFailedException()), refuse(unknown), lose_answer(unknown)])
    assert [type(change) for change in fit(catalog, wanted)] == [AddColumn]
    backfill = replace(wanted, owner=replace(OWNER, state_key="shop%2Forders.v1"), replaces=True)
    plant(catalog, [lose_answer(unknown)])
    assert [type(change) for change in fit(catalog, backfill)] == [StartBackfill]


def test_what_another_apply_has_done_is_not_described(tmp_path: Path, catalog: Catalog) -> None:
    fit(catalog, target())
    with closing(local_catalog(tmp_path)) as other:
        plant(catalog, [do_first(lambda: fit(other, target(*optional("note"))))])
        assert fit(catalog, target(*optional("note"))) == []


def test_endless_changes_by_somebody_else_end_the_attempts(tmp_path: Path, catalog: Catalog) -> None:
    fit(catalog, target())
    theirs: list[str] = []

    def plan(found: CatalogEntry) -> Sequence[TableChange]:
        theirs.append(f"theirs {len(theirs)}")
        fit(local_catalog(tmp_path), target(*optional(*theirs)))
        return plan_changes(found, target(*optional("ours")))

    with pytest.raises(RetryableError, match="shop\\.orders"):
        evolve(catalog, PATH, None, plan, alterer())
    assert names(catalog) == ["id", *theirs]
    assert len(theirs) == ATTEMPTS


def test_racing_creators_of_one_owner_agree_on_one_table(tmp_path: Path) -> None:
    local_catalog(tmp_path)
    together = Barrier(4)

    def create() -> str:
        catalog = local_catalog(tmp_path)
        together.wait()
        fit(catalog, target(*optional("note")))
        return str(catalog.load_table(PATH).metadata.table_uuid)

    with ThreadPoolExecutor(4) as pool:
        uuids = {future.result() for future in [pool.submit(create) for _ in range(4)]}
    assert len(uuids) == 1


def test_a_table_of_the_same_owner_that_appears_meanwhile_is_used(tmp_path: Path, catalog: Catalog) -> None:
    def plan(found: CatalogEntry) -> Sequence[TableChange]:
        if found.table is None:
            fit(local_catalog(tmp_path), target(*optional("theirs")))
        return plan_changes(CatalogEntry(True, found.table), target(*optional("ours")))

    assert evolve(catalog, PATH, None, plan, alterer()) == [AddColumn(*optional("ours"))]


def test_changes_are_planned_again_with_a_table_of_somebody_else_that_appears_meanwhile(
    tmp_path: Path, catalog: Catalog
) -> None:
    def plan(found: CatalogEntry) -> Sequence[TableChange]:
        if found.table:
            assert found.table.owner is None
            raise UserError("refused")
        foreign_table(local_catalog(tmp_path), PATH)
        return plan_changes(CatalogEntry(True, None), target(*optional("ours")))

    with pytest.raises(UserError, match="refused"):
        evolve(catalog, PATH, None, plan, alterer())
    assert names(catalog) == ["id"]


@pytest.fixture
def unchecking(catalog: Catalog) -> Catalog:
    """A catalog that says that it is Nessie, which does not check that a table has no snapshot yet."""
    catalog.properties["nessie.is-nessie-catalog"] = "true"
    return catalog


def count_snapshots(catalog: Catalog) -> int:
    snapshots = catalog.load_table(PATH).snapshots()
    assert all(each.summary and each.summary["total-records"] == "0" for each in snapshots)
    return len(snapshots)


def test_a_new_table_begins_with_a_snapshot_if_its_catalog_does_not_check_that_it_has_none(unchecking: Catalog) -> None:
    assert [type(change) for change in fit(unchecking, target())] == [CreateNamespace, CreateTable]
    assert count_snapshots(unchecking) == 1
    assert fit(unchecking, target()) == []
    assert count_snapshots(unchecking) == 1


def test_a_new_table_gets_its_first_snapshot_if_the_catalog_first_fails(unchecking: Catalog) -> None:
    plant(unchecking, [refuse(CommitStateUnknownException("HTTP 500"))])
    assert [type(change) for change in fit(unchecking, target())] == [CreateNamespace, CreateTable, AddFirstSnapshot]
    assert count_snapshots(unchecking) == 1


def test_the_next_apply_adds_the_first_snapshot_that_the_last_one_did_not_get_to(unchecking: Catalog) -> None:
    plant(unchecking, [refuse(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        fit(unchecking, target())
    assert count_snapshots(unchecking) == 0
    [change] = fit(unchecking, target())
    assert describe_change(change, PATH) == "alter table shop.orders: add an empty snapshot"
    assert count_snapshots(unchecking) == 1


def test_a_table_without_rows_of_another_program_gets_its_first_snapshot(unchecking: Catalog) -> None:
    foreign_table(unchecking, PATH)
    assert AddFirstSnapshot(PATH) in fit(unchecking, target())
    assert count_snapshots(unchecking) == 1


def test_a_view_of_that_name_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    foreign_table(catalog, PATH)
    turn_tables_into_views(tmp_path)
    with pytest.raises(UserError, match="a view of that name"):
        fit(catalog, target())


@pytest.mark.parametrize("is_older", [False, True])
def test_a_table_that_appears_while_a_view_is_looked_for_is_no_view(tmp_path: Path, *, is_older: bool) -> None:
    """Two applies create tables at once. A database that an older program has made does not tell views."""
    with closing(local_catalog(tmp_path)) as other:
        other.create_namespace("shop")
        if is_older:
            drop_types_of_tables(tmp_path)
    with closing(local_catalog(tmp_path)) as catalog, closing(local_catalog(tmp_path)) as other:
        plant(catalog, [do_first(lambda: fit(other, target()))], "view_exists")
        found = find(catalog, PATH)
        plan = partial(plan_changes, target=target(*optional("note")))
        done = evolve(catalog, PATH, None, plan, alterer(), found)
        assert [type(change) for change in done] == [AddColumn]


def test_a_table_whose_metadata_file_is_broken_is_named_with_the_way_out(catalog: Catalog) -> None:
    table = foreign_table(catalog, PATH)
    Path(table.metadata_location.removeprefix("file://")).write_text("{")
    with pytest.raises(UserError) as error:
        find(catalog, PATH)
    check_text("catalog_errors", "a metadata file that is broken", str(error.value))
    catalog.drop_table(PATH)
    assert find(catalog, PATH).table is None


@pytest.mark.parametrize(
    ("unknown", "text"),
    [
        ('"variant"', "a column of an unknown type"),
        (
            '{"type":"list","element-id":9,"element":"variant","element-required":false}',
            "a column of an unknown type",
        ),
        ('{"type":"struct","fields":[]},"initial-default":{}', "a column with a default of an unknown type"),
    ],
)
def test_a_table_with_a_type_that_pyiceberg_does_not_know_is_not_told_to_be_broken(
    catalog: Catalog, unknown: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = foreign_table(catalog, PATH)
    file = Path(table.metadata_location.removeprefix("file://"))
    variant = file.read_text().replace('"type":"long"', f'"type":{unknown}')
    file.write_text(variant)
    with pytest.raises(UserError) as error:
        find(catalog, PATH)
    check_text("catalog_errors", text, str(error.value))

    def load(*_: object) -> object:
        return TableResponse.model_validate({"metadata": json.loads(variant), "config": {}})

    monkeypatch.setattr(type(catalog), "load_table", load)  # as the client of a REST catalog
    with pytest.raises(UserError) as error_of_rest:
        find(catalog, PATH)
    assert str(error_of_rest.value) == str(error.value)


def test_a_version_1_table_is_refused_with_the_way_out(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties={"format-version": "1"})
    with pytest.raises(UserError, match=r"format version 1\..*upgrade the table"):
        load_table(catalog, PATH)
