"""An operator sees what is in a task's tables, who writes to them, and what is staged for them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform

from connector.cli.commands.inspect_command import InspectArguments, describe_tables, encode_tables, inspect_tables
from connector.cli.flow.flow_files import ConfigFile
from connector.config.catalog import LOCAL
from connector.host.errors import UserError
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.model import state
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Generation, Owner, TableIdentifier
from protocol.flow import Json
from support.engines.foreign_deletes import delete_equal, delete_position
from support.repository import REPOSITORY
from support.rows.staged_files import land, stage
from support.servers.endpoint_configs import on_s3, rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.server_thread import QuietHandler, in_thread
from support.snapshots import check_text
from support.tables.compacting import compact
from support.tables.local_tables import foreign_table, local_catalog

TASK: Final = "acme/lake"
ORDERS: Final = TableIdentifier("shop", "orders")
WRITER: Final = WriterId(TASK, "shop%2Forders.v0", "00000000-ffffffff")
REQUIRED_ID: Final = pa.schema([pa.field("id", pa.int64(), nullable=False)])
OWNER: Final = Owner(TASK, WRITER.state_key)
PAGE: Final = (REPOSITORY / "docs" / "commands.md").read_text()


@dataclass(frozen=True)
class Lake:
    """A Local catalog with a table of a task."""

    directory: Path
    catalog: Catalog

    def add_table(self, path: TableIdentifier, owner: Owner | None = OWNER) -> Table:
        return foreign_table(self.catalog, path, properties={OWNER_PROPERTY: owner.encode()} if owner else {})

    def commit(self, *ids: int, prev: str = fence.NONE) -> StagedCommit:
        staged = stage(self.catalog, ORDERS, WRITER, *ids, prev=prev)
        commit.commit_all_or_raise(self.catalog, [staged])
        return staged

    def file(self) -> str:
        """The path of a data file."""
        [first, *_] = self.catalog.load_table(ORDERS).inspect.data_files()["file_path"].to_pylist()
        return str(first)

    def write_state(self, *staged: StagedCommit) -> str:
        file = self.directory / "state.json"
        file.write_text(json.dumps(state.encode_added(staged)))
        return str(file)

    @property
    def source(self) -> ConfigFile:
        file = self.directory / "config.yaml"
        file.write_text(f"namespace: shop\ncatalog: {{catalog_type: {LOCAL}, warehouse: {self.directory}/warehouse}}\n")
        return ConfigFile(str(file))

    def inspect(self, *tables: str, task: str | None = None, state: str | None = None) -> Json:
        return json.loads(encode_tables(inspect_tables(InspectArguments(self.source, tables, task, state))))

    def describe(self, *tables: str, task: str | None = None, state: str | None = None) -> list[str]:
        return describe_tables(inspect_tables(InspectArguments(self.source, tables, task, state))).splitlines()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path, local_catalog(tmp_path / "warehouse"))
    lake.add_table(ORDERS)
    return lake


def names(inspected: Json) -> Sequence[str]:
    return [table["table"] for table in inspected["tables"]]


def test_a_new_table_is_empty(lake: Lake) -> None:
    (table,) = lake.inspect()["tables"]
    assert (table["rows"], table["dataFiles"], table["deleteFiles"], table["bytes"]) == (0, 0, 0, 0)
    assert (table["snapshots"], table["lastCommit"], table["writers"]) == (0, None, [])
    assert table["owner"] == {"materialization": TASK, "stateKey": WRITER.state_key}
    assert table["columns"] == [{"name": "id", "type": "long", "required": True}]


def test_the_rows_the_files_and_the_last_commit_of_the_task_are_shown(lake: Lake) -> None:
    first = lake.commit(1, 2)
    second = lake.commit(3, prev=first.next)
    (table,) = lake.inspect("shop.orders")["tables"]
    assert (table["rows"], table["dataFiles"], table["deleteFiles"], table["snapshots"]) == (3, 2, 0, 2)
    assert table["bytes"] == first.size + second.size > 0
    assert table["lastCommit"]["operation"] == "append"
    assert table["lastCommit"]["owner"] == {"materialization": TASK, "stateKey": WRITER.state_key}
    (writer,) = table["writers"]
    assert (writer["value"], writer["keyRange"], writer["materialization"]) == (second.next, WRITER.key_range, TASK)
    current = lake.catalog.load_table(ORDERS)
    assert (table["uuid"], table["location"]) == (str(current.metadata.table_uuid), current.location())


def test_the_freshness_of_the_newest_commit_that_has_times_is_shown(lake: Lake) -> None:
    lake.commit(1, 2)
    (table,) = lake.inspect()["tables"]
    assert table["freshness"] is None
    assert not any(line.startswith("  freshness") for line in lake.describe())
    snapshots = lake.catalog.load_table(ORDERS)
    fresh = {
        "flow.min-published-at": "2026-11-22T12:00:00.500000Z",
        "flow.max-published-at": "2026-11-22T12:00:03.000001Z",
        "flow.deleted-rows": "1",
        "flow.offsets": '{"acmeCo/orders/pivot=00":7}',
    }
    snapshots.append(pa.table({"id": pa.array([3, 4, 5], pa.int64())}, schema=REQUIRED_ID), fresh)
    for other in ({}, {"flow.max-published-at": "soon"}, fresh | {"flow.offsets": "seven"}):
        lake.catalog.load_table(ORDERS).append(pa.table({"id": pa.array([6], pa.int64())}, schema=REQUIRED_ID), other)
    (table,) = lake.inspect()["tables"]
    assert table["freshness"] == {
        "minPublishedAt": "2026-11-22T12:00:00.500000+00:00",
        "maxPublishedAt": "2026-11-22T12:00:03.000001+00:00",
        "upsertedRows": 3,
        "deletedRows": 1,
        "offsets": {"acmeCo/orders/pivot=00": 7},
    }
    [line] = [line for line in lake.describe() if line.startswith("  freshness")]
    assert re.fullmatch(r"  freshness    published until 2026-11-22 12:00:03 UTC \(.* ago\): 3 rows, 1 deleted", line)


def test_a_backfill_that_has_begun_is_shown(lake: Lake) -> None:
    table = lake.catalog.load_table(ORDERS)
    awaited = Generation("a", ("b",), TASK, 0)
    for generation in (awaited, replace(awaited, schema_id=None)):
        with table.transaction() as transaction:
            transaction.set_properties(generation.encode())
        [shown] = lake.inspect()["tables"]
        assert shown["awaitsBackfill"] is generation.is_awaited
        line = "  backfill     has begun: the first commit replaces all rows"
        assert (line in lake.describe()) is generation.is_awaited


def test_the_partitions_and_the_sort_order_are_shown(lake: Lake) -> None:
    lake.commit(1, 2)
    (table,) = lake.inspect()["tables"]
    assert (table["partitionBy"], table["partitions"], table["sortBy"]) == ([], 0, [])
    assert "  partitions   none" in lake.describe()
    assert "  sorted by    no column" in lake.describe()
    loaded = lake.catalog.load_table(ORDERS)
    with loaded.update_spec() as spec:
        spec.add_field("id", BucketTransform(16), "bucket")
    with loaded.update_sort_order() as order:
        order.desc("id", IdentityTransform())
    loaded.append(pa.table({"id": [7, 8, 8]}, schema=loaded.schema().as_arrow()))
    (table,) = lake.inspect()["tables"]
    assert (table["partitionBy"], table["partitions"]) == (["bucket(16, id)"], 2)
    assert table["sortBy"] == ["id desc nulls last"]
    assert "  partitions   bucket(16, id) (2 with files)" in lake.describe()
    assert "  sorted by    id desc nulls last" in lake.describe()


def test_branches_and_tags_are_shown(lake: Lake) -> None:
    lake.commit(1, 2)
    assert lake.inspect()["tables"][0]["references"] == []
    assert not any("references" in line for line in lake.describe())
    table = lake.catalog.load_table(ORDERS)
    snapshot = table.current_snapshot()
    assert snapshot
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "before_backfill").create_branch(
        snapshot.snapshot_id, "audit"
    ).commit()
    branch, tag = lake.inspect()["tables"][0]["references"]
    assert (branch["name"], branch["type"]) == ("audit", "branch")
    at = lake.inspect()["tables"][0]["lastCommit"]["at"]
    assert tag == {"name": "before_backfill", "type": "tag", "snapshotId": str(snapshot.snapshot_id), "at": at}
    lines = lake.describe()
    first = lines.index("  references") + 1
    when = r"the snapshot of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+ (second|minute)s? ago\)"
    assert re.fullmatch(f"    branch audit: {when}", lines[first])
    assert re.fullmatch(f"    tag before_backfill: {when}", lines[first + 1])


def test_the_page_names_every_property_of_the_json(lake: Lake) -> None:
    """With what is null or empty in most tables."""
    staged = lake.commit(1, 2)
    table = lake.catalog.load_table(ORDERS)
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "kept").commit()
    value = staged.next
    for number in range(6):
        value = lake.commit(number, prev=value).next
    compact(lake.catalog, ORDERS)
    times = {"flow.min-published-at": "2026-11-22T12:00:00Z", "flow.max-published-at": "2026-11-22T12:00:00Z"}
    row = pa.table({"id": pa.array([7], pa.int64())}, schema=REQUIRED_ID)
    lake.catalog.load_table(ORDERS).append(row, times | {"flow.deleted-rows": "1"})
    inspected = lake.inspect("shop.orders", "shop.missing", task=TASK, state=lake.write_state(staged))
    (shown,) = inspected["tables"]
    assert all((shown["freshness"], shown["references"], shown["staged"], shown["health"]["lastCompaction"]))
    missing = {name for name in _list_properties(inspected) if f'"{name}"' not in PAGE and f"`{name}`" not in PAGE}
    assert missing == set()


def _list_properties(value: Json) -> Iterator[str]:
    match value:
        case dict():
            for name, inner in value.items():
                yield name
                yield from _list_properties(inner)
        case list():
            yield from (name for each in value for name in _list_properties(each))


def test_commits_of_other_engines_are_shown_as_theirs(lake: Lake) -> None:
    lake.commit(1, 2)
    table = lake.catalog.load_table(ORDERS)
    table.append(pa.table({"id": [7]}, schema=table.schema().as_arrow()), snapshot_properties={"engine-name": "spark"})
    assert lake.inspect()["tables"][0]["lastCommit"]["engine"] == "spark"
    assert lake.inspect()["tables"][0]["lastCommit"]["owner"] is None
    delete_equal(lake.catalog.load_table(ORDERS), 1)
    assert any(line.endswith("by another program") for line in lake.describe())


def test_what_a_snapshot_without_totals_has_is_counted(lake: Lake) -> None:
    staged = lake.commit(1, 2)
    delete_equal(lake.catalog.load_table(ORDERS), 1)
    summary = lake.catalog.load_table(ORDERS).metadata.snapshots[-1].summary
    assert summary
    assert not any(name.startswith("total-") for name in summary.additional_properties)
    (table,) = lake.inspect()["tables"]
    assert (table["rows"], table["dataFiles"], table["deleteFiles"]) == (2, 1, 1)
    assert table["bytes"] > staged.size
    assert "  rows         2, including rows that delete files delete" in lake.describe()


def test_the_health_of_a_table_is_shown(lake: Lake) -> None:
    value = fence.NONE
    for number in range(6):
        value = lake.commit(2 * number, 2 * number + 1, prev=value).next
    delete_position(lake.catalog.load_table(ORDERS), lake.file(), 1)
    (table,) = lake.inspect()["tables"]
    health = table["health"]
    assert (table["rows"], health["visibleRows"], health["deletedRows"]) == (12, 11, 1)
    assert (health["smallFiles"], health["debt"]["files"], health["debt"]["rows"]) == (6, 6, 12)
    assert (health["lastCompaction"], health["manifests"]) == (None, 7)
    lines = lake.describe()
    assert "  rows         11 (1 more are deleted, but still in data files)" in lines
    assert "  small files  6 below half of the target size, 536.9 MB" in lines
    assert any(re.fullmatch(r"  debt         [\d.]+ kB in 6 data files to compact", line) for line in lines)
    assert "  compacted    not lately" in lines
    metadata = r"  metadata     7 manifests, [\d.]+ kB, and a metadata file of [\d.]+ kB"
    assert any(re.fullmatch(metadata, line) for line in lines)


def test_files_of_an_older_partition_spec_are_shown(lake: Lake) -> None:
    staged = lake.commit(1, 2)
    assert not any("old files" in line for line in lake.describe())
    with lake.catalog.load_table(ORDERS).update_spec() as update:
        update.add_field("id", IdentityTransform(), "id_as_it_is")
    (table,) = lake.inspect()["tables"]
    assert table["health"]["oldFiles"] == {"files": 1, "bytes": staged.size}
    old = r"  old files    1 data file with another partition spec or sort order, \d+ bytes"
    assert any(re.fullmatch(old, line) for line in lake.describe())


def test_the_last_compaction_and_what_it_saved_are_shown(lake: Lake) -> None:
    value = fence.NONE
    for number in range(6):
        value = lake.commit(number, prev=value).next
    result = compact(lake.catalog, ORDERS)
    (table,) = lake.inspect()["tables"]
    assert table["health"]["debt"] == {"files": 0, "rows": 0, "bytes": 0, "isManaged": False}
    last = table["health"]["lastCompaction"]
    assert (last["filesBefore"], last["filesAfter"]) == (6, 1)
    assert (last["bytesBefore"], last["bytesAfter"]) == (result.bytes_before, result.bytes_after)
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+ (second|minute)s? ago\)"
    became = r"6 files with [\d.]+ kB became 1 with ([\d.]+ kB|\d+ bytes)"
    assert any(re.fullmatch(f"  compacted    {when}: {became}", line) for line in lake.describe())
    assert "  debt         none" in lake.describe()


@pytest.mark.parametrize("content", [None, b"Obj"], ids=["gone", "cut short"])
def test_a_table_whose_files_cannot_be_listed_is_shown_without_its_health(lake: Lake, content: bytes | None) -> None:
    lake.commit(1, 2)
    snapshot = lake.catalog.load_table(ORDERS).current_snapshot()
    assert snapshot
    place = Path(snapshot.manifest_list.removeprefix("file://"))
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    inspected = lake.inspect()
    ((table,), (error,)) = inspected["tables"], inspected["errors"]
    assert (table["rows"], table["dataFiles"], table["health"]) == (2, 1, None)
    assert len(table["writers"]) == 1
    name = f"inspect: a manifest list is {'gone' if content is None else 'broken'}"
    location = lake.catalog.load_table(ORDERS).location()
    check_text("cli_errors", name, error["message"], {str(place): "FILE", location: "LOCATION"})


def test_a_person_reads_a_table_line_by_line(lake: Lake) -> None:
    committed = lake.commit(1, 2)
    staged = stage(lake.catalog, ORDERS, WRITER, 3, prev=committed.next)
    state_file = lake.write_state(staged)
    assert lake.inspect(task=TASK, state=state_file)["errors"] == []
    lines = lake.describe(task=TASK, state=state_file)
    assert lines[0] == "table shop.orders"
    assert "  rows         2" in lines
    assert any(
        re.fullmatch(r"  files        1 data file, 0 delete files, (\d+ bytes|[\d.]+ kB)", line) for line in lines
    )
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+ (second|minute)s? ago\)"
    assert any(re.fullmatch(f"  last commit  {when}: append by acme/lake, state key .*", line) for line in lines)
    assert lines[lines.index("  columns") + 1] == "    id long not null"
    assert lines[lines.index("  writers") + 1] == f"    acme/lake, state key {WRITER.state_key}"
    assert any(re.fullmatch(f"      last commit  {when}", line) for line in lines), "in the same form"
    staged_at = lines.index("  staged")
    assert lines[staged_at + 2].endswith(f"{committed.next} -> {staged.next}: 1 row in 1 file: will be committed")


def test_without_a_state_the_staged_commits_are_unknown_and_with_an_empty_one_there_are_none(lake: Lake) -> None:
    assert lake.inspect()["tables"][0]["staged"] is None
    assert "  staged       unknown: give the task's connector state with --state" in lake.describe()
    empty = lake.write_state()
    assert lake.inspect(task=TASK, state=empty)["tables"][0]["staged"] == []
    assert "  staged       none" in lake.describe(task=TASK, state=empty)


def test_a_commit_that_is_staged_for_a_table_that_is_gone_is_shown(lake: Lake) -> None:
    staged = stage(lake.catalog, ORDERS, WRITER, 3)
    lake.catalog.drop_table(ORDERS)
    (error,) = lake.inspect(task=TASK, state=lake.write_state(staged))["errors"]
    assert error["table"] == "shop.orders"
    check_text("cli_errors", "staged commits for a table that is gone", error["message"])


def test_all_tables_of_the_connector_are_shown_and_no_others(lake: Lake) -> None:
    lake.add_table(TableIdentifier("shop", "customers"), Owner("acme/other", "shop%2Fcustomers.v0"))
    lake.add_table(TableIdentifier("shop", "foreign"), owner=None)
    lake.add_table(TableIdentifier("store", "elsewhere"))
    taken = TableIdentifier("shop", "taken")
    lake.add_table(taken, owner=None)
    land(lake.catalog, 1, path=taken, writer=WRITER)
    assert names(lake.inspect()) == ["shop.customers", "shop.orders"]
    assert names(lake.inspect(task=TASK)) == ["shop.orders", "shop.taken"]
    assert names(lake.inspect("shop.foreign", "store.elsewhere")) == ["shop.foreign", "store.elsewhere"]


def test_a_namespace_without_tables_of_the_connector_is_said_to_have_none(lake: Lake) -> None:
    lake.catalog.drop_table(ORDERS)
    assert lake.describe() == ["The connector has created no table here. Name others with --table."]


def test_a_table_that_cannot_be_read_hides_no_other(lake: Lake) -> None:
    foreign_table(lake.catalog, TableIdentifier("shop", "older"), properties={"format-version": "1"})
    inspected = lake.inspect("shop.older", "shop.orders", "shop.missing")
    assert names(inspected) == ["shop.orders"]
    older, missing = inspected["errors"]
    assert "Iceberg format version 1" in older["message"]
    check_text("cli_errors", "a table to inspect that is not there", missing["message"])


def test_the_line_of_an_error_names_its_table_once(lake: Lake) -> None:
    Path(lake.catalog.load_table(ORDERS).metadata_location.removeprefix("file://")).write_text("{")
    [error] = lake.inspect()["errors"]
    assert error["table"] == "shop.orders"
    assert error["message"].startswith("its metadata file is broken.")


def test_a_namespace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        Lake(tmp_path, local_catalog(tmp_path / "warehouse")).inspect()
    check_text("cli_errors", "a namespace to inspect that is not there", str(error.value))


def test_inspecting_changes_nothing(lake: Lake) -> None:
    staged = lake.commit(1)
    state_file, _ = lake.write_state(staged), lake.source
    before = {path: path.read_bytes() for path in lake.directory.rglob("*") if path.is_file()}
    lake.describe(task=TASK, state=state_file)
    assert {path: path.read_bytes() for path in lake.directory.rglob("*") if path.is_file()} == before


def test_a_table_that_the_catalog_does_not_show_hides_no_other(lake: Lake) -> None:
    """In a namespace with tables of other people."""
    location = lake.catalog.load_table(ORDERS).metadata_location
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    forbidden = {"error": {"message": "orders of others", "type": "ForbiddenException", "code": 403}}
    not_found = {"error": {"message": "no metadata file", "type": "NotFoundException", "code": 404}}
    answers = {
        "/v1/config": (200, {}),
        "/v1/namespaces/shop/tables": (
            200,
            {"identifiers": [{"namespace": ["shop"], "name": name} for name in ("lost", "orders", "others")]},
        ),
        "/v1/namespaces/shop/tables/orders": (200, {"metadata-location": location, "metadata": metadata}),
        "/v1/namespaces/shop/tables/others": (403, forbidden),
        "/v1/namespaces/shop/tables/lost": (404, not_found),
    }

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            status, body = answers[self.path.partition("?")[0]]
            self.respond(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    config = {
        "namespace": "shop",
        "catalog": rest(f"http://127.0.0.1:{http.server_port}"),
        "storage": {"storage_type": "Local Files", "directory": str(lake.directory)},
    }
    file = lake.directory / "config.json"
    file.write_text(json.dumps(config))
    with in_thread(http):
        inspected = json.loads(encode_tables(inspect_tables(InspectArguments(ConfigFile(str(file))))))
    assert names(inspected) == ["shop.orders"]
    lost, others = inspected["errors"]
    assert (lost["table"], others["table"]) == ("shop.lost", "shop.others")
    check_text("cli_errors", "a table that the catalog lists and does not find", lost["message"])
    assert "forbids this: ForbiddenException: orders of others" in others["message"]


@pytest.mark.catalog
def test_tables_of_a_rest_catalog_are_shown(tmp_path: Path, rest_on_s3: RestCatalogOnS3) -> None:
    catalog = rest_on_s3.client()
    table = foreign_table(catalog, ("inspected", "orders"), properties={OWNER_PROPERTY: OWNER.encode()})
    table.append(pa.table({"id": [1, 2]}, schema=table.schema().as_arrow()))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(on_s3(rest_on_s3.s3, rest_on_s3.bucket, "inspected", rest(rest_on_s3.uri))))
    inspected = inspect_tables(InspectArguments(ConfigFile(str(file))))
    ((status, _),) = ((each.status, each.health) for each in inspected.found)
    assert (status.path, status.size.rows, status.owner) == (("inspected", "orders"), 2, OWNER)


# The command


def run(lake: Lake, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "connector", "inspect", "--config", lake.source.file, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_command_prints_tables_as_json(lake: Lake) -> None:
    assert names(json.loads(run(lake, "--json").stdout)) == ["shop.orders"]


def test_the_command_prints_tables_for_people_and_its_exit_status_says_that_one_cannot_be_read(lake: Lake) -> None:
    lake.commit(1, 2)
    said = run(lake, "--table", "shop.orders", "--table", "shop.missing")
    assert said.returncode == 1
    assert said.stdout.startswith("table shop.orders\n  rows         2\n")
    assert "missing" not in said.stdout
    assert said.stderr.splitlines()[-1].endswith("error table shop.missing: the table does not exist.")
    assert run(lake, "--table", "shop.missing").stdout == ""
