"""An operator sees what maintenance would do, does it beside running tasks, and may end it at any time."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import TruncateTransform

from connector.cli.arguments import parse_arguments
from connector.cli.commands.maintain_command import maintain_tables, read_arguments
from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.task_tables import find_tables
from connector.cli.texts.maintain_texts import describe_maintenance, encode_maintenance
from connector.cli.waiting import WaitingLine
from connector.config.catalog import LOCAL
from connector.host.errors import InvalidConfigError
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.iceberg.maintenance import compact_table
from connector.iceberg.maintenance.action_outcomes import MaintainedTable, MaintainedTables
from connector.iceberg.maintenance.actions import Action
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.compaction_thresholds import MIN_INPUT_FILES
from connector.iceberg.metadata.retention import GC_ENABLED, MAX_AGE
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Owner, TableIdentifier
from connector.spark.jobs import compaction_job
from connector.storage.file_io import StoreFileIO
from connector.storage.stored_files import list_stored_files
from protocol.flow import Json
from support.engines.snapshot_refs import tag
from support.rows.staged_files import leave_behind, place_of, stage, write_file
from support.servers.endpoint_configs import on_s3, rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.sessions.processes import heeded_signals, marked, new_mark, wait_until
from support.snapshots import check_text
from support.tables.compacting import expire_access
from support.tables.local_tables import foreign_table, ids_of, local_catalog

ORDERS: Final = TableIdentifier("shop", "orders")
WRITER: Final = WriterId("acme/lake", "shop%2Forders.v0", "00000000-ffffffff")
OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)
# Snapshots expire at once, and Spark does not start to compact a few files.
PROPERTIES: Final = {MAX_AGE: "0", MIN_INPUT_FILES: "1000"}


@dataclass(frozen=True)
class Lake:
    """A catalog with a table of a task, and the file with its config."""

    catalog: Catalog
    config: Path

    def add_table(self, path: TableIdentifier, owner: Owner | None = OWNER) -> Table:
        owned = {OWNER_PROPERTY: owner.encode()} if owner else {}
        return foreign_table(self.catalog, path, properties=PROPERTIES | owned)

    def commit(self, *ids: int, path: TableIdentifier = ORDERS, prev: str | None = None) -> StagedCommit:
        staged = stage(self.catalog, path, WRITER, *ids, prev=prev)
        commit.commit_all_or_raise(self.catalog, [staged])
        return staged

    @property
    def table(self) -> Table:
        return self.catalog.load_table(ORDERS)

    def maintain(self, *arguments: str) -> Json:
        return json.loads(encode_maintenance(self._maintain(arguments)))

    def describe(self, *arguments: str) -> str:
        return describe_maintenance(self._maintain(arguments))

    def _maintain(self, arguments: Sequence[str]) -> Any:
        source = ConfigFile(str(self.config))
        options = parse_arguments(["maintain", *arguments, "--config", source.file])
        return maintain_tables(read_arguments(options, source), WaitingLine(None))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    config = tmp_path / "config.yaml"
    config.write_text(f"namespace: shop\ncatalog: {{catalog_type: {LOCAL}, warehouse: {tmp_path}/warehouse}}\n")
    lake = Lake(local_catalog(tmp_path / "warehouse"), config)
    lake.add_table(ORDERS)
    return lake


@pytest.fixture
def left(lake: Lake) -> str:
    """A table with work for every action. The location of an orphan file."""
    left = leave_behind(lake.table, WRITER)
    first = lake.commit(1)
    second = lake.commit(2, prev=first.next)
    lake.commit(3, prev=second.next)
    return left


def files_of(lake: Lake) -> dict[Path, bytes]:
    root = place_of(lake.table.location())
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def find(maintained: Json, action: str) -> Json:
    ((table,), errors) = maintained["tables"], maintained["errors"]
    assert errors == []
    return next(each for each in table["actions"] if each["action"] == action)


def test_a_dry_run_changes_nothing_and_tells_what_a_run_then_does(lake: Lake, left: str) -> None:
    before, location = files_of(lake), lake.table.metadata_location
    planned = lake.maintain("all", "--dry-run")
    lake.describe("all", "--dry-run")
    assert (files_of(lake), lake.table.metadata_location) == (before, location)
    manifests, expire, orphans = (find(planned, action) for action in ("manifests", "expire", "orphans"))
    assert (manifests["replaced"], manifests["written"]) == (3, 1)
    assert (expire["snapshots"], orphans["deleted"]) == (2, [left])
    for action, expected in (("orphans", orphans), ("expire", expire), ("manifests", manifests)):
        before = files_of(lake)
        assert find(lake.maintain(action), action) == expected
        deleted = {place_of(each) for each in expected.get("deleted", ())}
        assert {path for path in before.keys() - files_of(lake).keys() if path.suffix != ".json"} == deleted
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3]
    assert len(lake.table.snapshots()) == 2


def test_the_bytes_are_those_of_the_files(lake: Lake, left: str) -> None:
    planned = lake.maintain("all", "--dry-run")
    for action in ("expire", "orphans"):
        outcome = find(planned, action)
        assert outcome["bytes"] == sum(place_of(each).stat().st_size for each in outcome["deleted"]) > 0
        assert outcome["files"] == len(outcome["deleted"]) > 0
    assert find(planned, "orphans")["void"] == {"files": 1, "bytes": place_of(left).stat().st_size}


def test_all_actions_leave_nothing_to_do(lake: Lake, left: str) -> None:
    lake.maintain("all")
    assert not place_of(left).exists()
    lake.maintain("all")
    again = lake.maintain("all")
    assert (
        find(again, "manifests")["replaced"] == find(again, "expire")["files"] == find(again, "orphans")["files"] == 0
    )
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3]


def read(text: str) -> list[str]:
    """The lines without the table's name, the names of files and their sizes."""
    return [
        re.sub(r"\([0-9.]+ (bytes|kB)\)", "(SIZE)", line) for line in text.splitlines()[1:] if "file://" not in line
    ]


def test_a_person_reads_what_would_be_done_and_what_is_done(lake: Lake, left: str) -> None:
    planned = lake.describe("all", "--dry-run")
    assert read(planned) == [
        "  compact    0 data files would be compacted",
        "  manifests  3 manifests (SIZE) would be merged into 1",
        "  expire     2 snapshots would be expired, 2 files (SIZE) would be deleted",
        "  orphans    1 file (SIZE) would be deleted, of transactions that can no longer be committed",
        "Nothing was changed. Repeat the command without --dry-run to do it.",
    ]
    assert f"               {left}" in planned.splitlines()
    assert read(lake.describe("all")) == [
        "  compact    0 data files compacted",
        "  manifests  3 manifests (SIZE) merged into 1",
        "  expire     3 snapshots expired, 6 files (SIZE) deleted",
        "  orphans    1 file (SIZE) deleted, of transactions that can no longer be committed",
    ]
    assert read(lake.describe("expire")) == ["  expire     0 snapshots expired, 0 files deleted"]


def test_a_tag_at_its_maximum_age_is_named(lake: Lake) -> None:
    lake.commit(1)
    snapshot = lake.table.current_snapshot()
    assert snapshot
    tag(lake.catalog, ORDERS, "release", snapshot.snapshot_id, max_ref_age_ms=1)
    assert find(lake.maintain("expire", "--dry-run"), "expire")["references"] == ["release"]
    planned = lake.describe("expire", "--dry-run")
    assert read(planned)[:2] == [
        "  expire     0 snapshots would be expired, 0 files would be deleted",
        "             1 branch or tag would be removed: release",
    ]
    assert list(lake.table.refs()) == ["main", "release"]
    assert read(lake.describe("expire"))[1] == "             1 branch or tag removed: release"
    assert list(lake.table.refs()) == ["main"]
    assert find(lake.maintain("expire"), "expire")["references"] == []


def test_a_person_reads_of_other_files(lake: Lake) -> None:
    lake.commit(1)
    uuid = lake.table.metadata.table_uuid
    lake.catalog.drop_table(ORDERS)
    lake.add_table(ORDERS)
    lake.commit(2)
    write_file(lake.table, "part-0.parquet", 7)
    today = datetime.now(UTC).date()
    assert read(lake.describe("orphans")) == [
        "  orphans    0 files deleted, of transactions that can no longer be committed",
        f"             3 files (SIZE) kept, of another table (uuid {uuid}): the newest is of {today}",
    ]
    young = ["--older-than", "0", "--allow-young-files"]
    assert read(lake.describe("orphans", *young))[-1].startswith("             5 files (SIZE) kept, of another table")
    planned = lake.maintain("orphans", *young, "--dropped-tables", "--dry-run")
    assert (find(planned, "orphans")["dropped"]["files"], find(planned, "orphans")["unknown"]["files"]) == (5, 1)
    assert read(lake.describe("orphans", *young, "--dropped-tables")) == [
        "  orphans    0 files deleted, of transactions that can no longer be committed",
        "             5 files (SIZE) deleted, of dropped tables",
        "             1 file (SIZE) deleted, that the connector does not know",
    ]
    assert ids_of(lake.catalog, ORDERS) == [2]


@pytest.mark.usefixtures("left")
def test_a_person_reads_that_all_files_must_stay(lake: Lake) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({GC_ENABLED: "false"})
    before = files_of(lake)
    orphans = find(lake.maintain("all"), "orphans")
    assert (orphans["isFinished"], orphans["mustStay"], orphans["files"]) == (True, True, 0)
    assert before.keys() <= files_of(lake).keys()
    assert read(lake.describe("orphans")) == [
        "  orphans    no file is deleted: something outside may need it, because gc.enabled is false or the catalog is "
        "Nessie"
    ]


@pytest.mark.usefixtures("left")
def test_a_person_reads_that_another_table_format_may_need_unknown_files(lake: Lake) -> None:
    log = f"{lake.table.location()}/_delta_log"
    place_of(log).mkdir()
    (place_of(log) / "00000000000000000000.json").write_text("{}")
    asked = ["orphans", "--older-than", "0", "--allow-young-files", "--dropped-tables"]
    assert find(lake.maintain(*asked, "--dry-run"), "orphans")["foreignLog"] == log
    assert read(lake.describe(*asked).replace(log, "LOG")) == [
        "  orphans    1 file (SIZE) deleted, of transactions that can no longer be committed",
        "             all others are kept: LOG is the log of another table format, which may refer to them",
    ]
    assert files_of(lake)[place_of(log) / "00000000000000000000.json"] == b"{}"


def test_a_person_reads_what_a_compaction_did() -> None:
    result = CompactionResult(
        commits=1, files_before=40, files_after=1, bytes_before=34_000_000, bytes_after=30_100_000, deleted_rows=1204,
        delete_files=3, dropped=1, errors=("the storage does not answer", "a file is damaged"), debt=1_000,
    )  # fmt: skip
    maintained = MaintainedTables(False, [MaintainedTable(ORDERS, [(Action.COMPACT, result)])], [])
    assert describe_maintenance(maintained).splitlines() == [
        "table shop.orders",
        "  compact    40 data files (34.0 MB) became 1 (30.1 MB)",
        "             3 delete files and 1,204 deleted rows removed",
        "             1 group of files left, because another writer has changed them",
        "             2 groups of files failed: the end of the log says why",
        "             1.0 kB are left",
    ]
    too_small = replace(maintained, tables=[MaintainedTable(ORDERS, [(Action.COMPACT, CompactionResult(debt=1_000))])])
    assert read(describe_maintenance(too_small)) == [
        "  compact    0 data files compacted",
        "             1.0 kB are left: the budget is too small for a group of files",
    ]
    done = replace(maintained, tables=[MaintainedTable(ORDERS, [(Action.COMPACT, replace(result, errors=()))])])
    assert describe_maintenance(done).endswith("1.0 kB are left. Repeat the command to continue")
    managed = describe_maintenance(MaintainedTables(False, [MaintainedTable(ORDERS, (), is_managed=True)], []))
    assert managed == "table shop.orders: Amazon S3 Tables maintains this table itself"


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("maintain: groups that failed alike", ["the storage does not answer.", "the storage does not answer."]),
        ("maintain: groups that failed", ["the storage does not answer.", "the file part-0.parquet is damaged."]),
    ],
)
def test_the_end_of_the_log_says_why_groups_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, errors: Sequence[str]
) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({MIN_INPUT_FILES: "2"})
    result = CompactionResult(groups=1, errors=tuple(errors))
    monkeypatch.setattr(TableCompactor, "compact", lambda *_: result)
    maintained = lake.maintain("compact")
    ((action,), (error,)) = maintained["tables"][0]["actions"], maintained["errors"]
    assert (action["isFinished"], action["failedGroups"]) == (False, 2)
    check_text("cli_errors", name, error["message"])


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize("action", Action)
def test_a_table_that_is_dropped_meanwhile_ends_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    """All tables are found before the first one is maintained."""
    before, gone = lake.table.metadata, TableIdentifier("shop", "aaa")
    lake.add_table(gone)

    def find_and_drop(*arguments: Any) -> Any:
        found = [*find_tables(*arguments)]
        lake.catalog.drop_table(gone)
        return found

    monkeypatch.setattr("connector.cli.commands.maintain_command.find_tables", find_and_drop)
    maintained = lake.maintain(action)
    ((error,), (_, done)) = maintained["errors"], maintained["tables"]
    check_text("cli_errors", "maintain: a table that is dropped meanwhile", error["message"].partition(": ")[2])
    assert (error["table"], done["table"], done["actions"][0]["isFinished"]) == (str(gone), str(ORDERS), True)
    assert (lake.table.metadata != before) is (action in (Action.MANIFESTS, Action.EXPIRE))


@pytest.mark.long
@pytest.mark.usefixtures("left")
def test_an_unexpected_error_is_told_when_the_other_tables_are_done(lake: Lake) -> None:
    lake.add_table(TableIdentifier("shop", "aaa"))
    done = run(lake, "expire", "--json", script=FAILS_FOR_THE_FIRST)
    assert (done.returncode, done.stderr.splitlines()[-1].partition(" error ")[2]) == (
        70,
        "Internal error: KeyError: 'a defect'. Run with LOG_LEVEL=debug for a traceback.",
    )
    tables = {each["table"]: each["actions"] for each in json.loads(done.stdout)["tables"]}
    assert tables["shop.aaa"] == []
    assert tables[str(ORDERS)][0]["snapshots"] == 2
    assert len(lake.table.snapshots()) == 1


@pytest.mark.usefixtures("left")
def test_new_credentials_that_are_refused_fail_a_group(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another error would end the whole action."""
    with lake.table.transaction() as transaction:
        transaction.set_properties({MIN_INPUT_FILES: "2"})
    jobs: Any = SimpleNamespace(maintenance_tasks=1, maintain=pytest.fail)
    monkeypatch.setattr(compaction_job, "compaction_jobs", lambda _: nullcontext(compaction_job.compact_in(jobs)))
    monkeypatch.setattr(compact_table, "access_to", expire_access)
    maintained = lake.maintain("compact")
    ((action,), (error,)) = maintained["tables"][0]["actions"], maintained["errors"]
    assert action["failedGroups"] == 1
    assert "table shop.orders was dropped or renamed while the task was running" in error["message"]


def test_tables_of_the_connector_are_maintained_and_no_others(lake: Lake) -> None:
    lake.add_table(TableIdentifier("shop", "customers"), Owner("acme/other", "shop%2Fcustomers.v0"))
    lake.add_table(TableIdentifier("shop", "foreign"), owner=None)
    lake.add_table(TableIdentifier("store", "elsewhere"))
    maintained = lake.maintain("all")
    assert [table["table"] for table in maintained["tables"]] == ["shop.customers", "shop.orders"]
    chosen = lake.maintain("all", "--table", "store.elsewhere", "--table", "shop.foreign", "--table", "shop.missing")
    assert [table["table"] for table in chosen["tables"]] == ["store.elsewhere"]
    foreign, missing = chosen["errors"]
    check_text("cli_errors", "maintain: a table of another program", foreign["message"])
    check_text("cli_errors", "maintain: a table that is not there", missing["message"])


def test_a_table_of_another_program_is_maintained_if_a_task_has_written_to_it(lake: Lake) -> None:
    taken = TableIdentifier("shop", "taken")
    lake.add_table(taken, owner=None)
    left = leave_behind(lake.catalog.load_table(taken), WRITER)
    prev = fence.NONE
    for i in range(3):
        prev = lake.commit(i, path=taken, prev=prev).next
    others = lake.maintain("all")
    assert [table["table"] for table in others["tables"]] == ["shop.orders"], "no task is named"
    maintained = lake.maintain("all", "--table", "shop.taken")
    assert find(maintained, "manifests")["replaced"] == 3
    assert find(maintained, "orphans")["deleted"] == [left]
    assert ids_of(lake.catalog, taken) == [0, 1, 2]
    assert len(lake.catalog.load_table(taken).snapshots()) == 1, "no snapshot of the task is left"
    assert not lake.maintain("all", "--table", "shop.taken")["errors"]


def test_the_tables_of_a_task_are_maintained_also_those_that_other_programs_created(lake: Lake, tmp_path: Path) -> None:
    for name in ("taken", "foreign"):
        lake.add_table(TableIdentifier("shop", name), owner=None)
    lake.add_table(TableIdentifier("shop", "customers"), Owner("acme/other", "shop%2Fcustomers.v0"))
    lake.commit(1, path=TableIdentifier("shop", "taken"))
    task = {"endpoint": {"connector": {"image": "", "config": lake.config.name}}, "bindings": []}
    flow = tmp_path / "flow.yaml"
    flow.write_text(json.dumps({"materializations": {WRITER.materialization: task}}))
    options = parse_arguments(["maintain", "all", "--flow", str(flow)])
    maintained = maintain_tables(read_arguments(options, FlowFile(str(flow), None)), WaitingLine(None))
    assert [str(table.path) for table in maintained.tables] == ["shop.orders", "shop.taken"]
    assert not maintained.errors


@pytest.mark.usefixtures("left")
def test_a_table_that_is_named_twice_is_maintained_once(lake: Lake) -> None:
    maintained = lake.maintain("manifests", "--table", "shop.orders", "--table", "SHOP.orders")
    assert find(maintained, "manifests")["replaced"] == 3


@pytest.mark.usefixtures("left")
def test_the_log_says_how_far_each_action_has_come(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "connector.cli")
    lake.maintain("manifests", "--dry-run")
    lake.maintain("manifests", "--max-seconds", "0")
    lake.maintain("manifests")
    lines = [f"manifests shop.orders: {outcome}" for outcome in ("planned", "not finished", "done")]
    assert caplog.messages == lines


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize(("kind", "content"), [("gone", None), ("cut short", b"Obj"), ("empty", b"")])
def test_a_table_that_is_broken_does_not_stop_the_others(lake: Lake, kind: str, content: bytes | None) -> None:
    lake.add_table(TableIdentifier("shop", "customers"))
    lake.commit(1, path=TableIdentifier("shop", "customers"))
    table = lake.catalog.load_table(("shop", "customers"))
    broken = table.current_snapshot()
    assert broken
    place = place_of(broken.manifest_list)
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    maintained = lake.maintain("manifests")
    assert [table["table"] for table in maintained["tables"] if table["actions"]] == ["shop.orders"]
    (error,) = maintained["errors"]
    name = f"maintain: a manifest list is {kind}"
    check_text("cli_errors", name, error["message"], {str(place): "FILE", table.location(): "LOCATION"})


@pytest.mark.usefixtures("left")
def test_an_invalid_property_is_named(lake: Lake) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({MAX_AGE: "-1"})
    (error,) = lake.maintain("expire")["errors"]
    check_text("cli_errors", "maintain: an age of -1", error["message"])
    assert "shop.orders" not in error["message"], "the line that shows it names the table"


@pytest.mark.usefixtures("left")
def test_a_path_that_pyarrow_refuses_is_not_told_as_a_property(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise pa.ArrowInvalid("Empty path component in path lake//file")

    monkeypatch.setattr(StoreFileIO, "delete", refuse)
    (error,) = lake.maintain("orphans")["errors"]
    assert error["message"].startswith(f"orphans: {lake.table.location()}: the connector cannot use objects")


@pytest.mark.usefixtures("left")
def test_when_the_time_is_over_nothing_more_is_done(lake: Lake) -> None:
    before = files_of(lake)
    maintained = lake.maintain("all", "--max-seconds", "0")
    assert [each["isFinished"] for each in maintained["tables"][0]["actions"]] == [False] * 4
    assert files_of(lake) == before
    unfinished = "not finished: the budget is used up. Repeat the command to continue"
    assert read(lake.describe("expire", "--max-seconds", "0")) == [f"  expire     {unfinished}"]


@pytest.mark.usefixtures("left")
def test_no_more_bytes_are_written_again_than_allowed(lake: Lake) -> None:
    other = TableIdentifier("shop", "customers")
    lake.add_table(other)
    for number in range(2):
        lake.commit(number, path=other)
    first, second = lake.maintain("manifests", "--max-bytes", "1")["tables"]
    assert (first["actions"][0]["isFinished"], second["actions"][0]["isFinished"]) == (True, False)


@pytest.mark.usefixtures("left")
def test_a_running_task_commits_what_it_has_staged(lake: Lake) -> None:
    """All actions run between the transactions, and while the rows of one are staged."""
    value = fence.read_value(lake.table.properties, WRITER)
    for number in range(4, 8):
        staged = stage(lake.catalog, ORDERS, WRITER, number, prev=value)
        waiting = stage(lake.catalog, ORDERS, WRITER, number + 10, prev=staged.next)
        assert lake.maintain("all", "--older-than", "0", "--allow-young-files", "--dropped-tables")["errors"] == []
        commit.commit_all_or_raise(lake.catalog, [staged, waiting])
        value = waiting.next
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3, 4, 5, 6, 7, 14, 15, 16, 17]


@pytest.mark.usefixtures("left")
def test_young_unknown_files_need_a_word_more(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = write_file(lake.table, "part-0.parquet", 7)
    for arguments in (["all"], ["all", "--older-than"], ["orphans", "--older-than", "1"]):
        assert unknown not in find(lake.maintain(*arguments), "orphans")["deleted"]
    with pytest.raises(SystemExit) as ended:
        lake.maintain("orphans", "--older-than", "0.5")
    assert ended.value.code == 2
    assert "--older-than is less than a day" in capsys.readouterr().err
    os.utime(place_of(unknown), (0, 0))
    assert find(lake.maintain("orphans"), "orphans")["deleted"] == []
    assert find(lake.maintain("orphans", "--older-than"), "orphans")["deleted"] == [unknown]


@pytest.mark.parametrize(
    "arguments",
    [
        ["expire", "--older-than"],
        ["manifests", "--dropped-tables"],
        ["orphans", "--rearrange"],
        ["all", "--spark", "local[2]"],
        ["all", "--task", "acme/lake"],
        ["compakt"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(lake: Lake, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lake.maintain(*arguments)
    assert ended.value.code == 2
    assert re.search("materialize-iceberg( maintain)?: error: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--max-seconds", "-1"], "argument --max-seconds: -1 is not a number of at least 0"),
        (["--max-seconds", "nan"], "argument --max-seconds: nan is not a number of at least 0"),
        (["--max-seconds", "1h"], "argument --max-seconds: 1h is not a number of at least 0"),
        (["--max-bytes", "-5"], "argument --max-bytes: -5 is not a whole number of at least 0"),
        (["--max-bytes", "1GB"], "argument --max-bytes: 1GB is not a whole number of at least 0"),
        (["--older-than", "-3", "--allow-young-files"], "argument --older-than: -3 is not a number of at least 0"),
        (["--older-than", "inf"], "--older-than: inf is more than 36500 days"),
        (["--older-than", "36500.5"], "--older-than: 36500.5 is more than 36500 days"),
        (["--max-bytes", "\N{ARABIC-INDIC DIGIT THREE}"], "is not a whole number of at least 0"),
        (["--spark", "=4g"], "--spark =4g: give a name and a value, with = between them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_values_that_are_no_budget_and_no_age_are_refused(
    lake: Lake, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        lake.maintain("all", *arguments)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("advanced", "problem"),
    [
        ("x", "/advanced: must be an object"),
        ([], "/advanced: must be an object"),
        ({"spark": "x"}, "/advanced/spark: must be an object"),
        ({"spark": []}, "/advanced/spark: must be an object"),
    ],
    ids=str,
)
def test_settings_of_spark_hide_no_problem_of_the_config(lake: Lake, advanced: Json, problem: str) -> None:
    with lake.config.open("a") as config:
        config.write(f"advanced: {json.dumps(advanced)}\n")
    with pytest.raises(InvalidConfigError) as error:
        lake.maintain("compact", "--spark", "driver.memory=1g")
    assert str(error.value) == problem


@pytest.mark.parametrize("advanced", [None, {}, {"spark": None}], ids=str)
def test_settings_of_spark_need_none_in_the_config(lake: Lake, advanced: Json) -> None:
    with lake.config.open("a") as config:
        config.write(f"advanced: {json.dumps(advanced)}\n")
    assert lake.maintain("manifests", "--dry-run", "--spark", "driver.memory=1g")["errors"] == []


@pytest.mark.parametrize("days", ["1", "36500"])
def test_files_may_be_kept_for_a_day_and_for_a_hundred_years(lake: Lake, days: str) -> None:
    assert lake.maintain("orphans", "--older-than", days, "--dry-run")["errors"] == []


@pytest.mark.catalog
def test_a_table_of_a_rest_catalog_is_maintained(tmp_path: Path, rest_on_s3: RestCatalogOnS3) -> None:
    path = TableIdentifier("maintained", "orders")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(on_s3(rest_on_s3.s3, rest_on_s3.bucket, path.namespace, rest(rest_on_s3.uri))))
    lake = Lake(rest_on_s3.client(), config)
    left = leave_behind(lake.add_table(path), WRITER)
    for number in range(3):
        lake.commit(number, path=path)
    staged = stage(lake.catalog, path, WRITER, 3)
    table = lake.catalog.load_table(path)
    before = list(list_stored_files(table.io, table.location()))
    planned = lake.maintain("all", "--dry-run", "--dropped-tables", "--older-than")
    assert list(list_stored_files(table.io, table.location())) == before
    assert lake.catalog.load_table(path).metadata_location == table.metadata_location
    assert find(planned, "orphans")["deleted"] == [left]
    maintained = lake.maintain("all", "--dropped-tables", "--older-than")
    assert find(maintained, "orphans")["deleted"] == [left]
    assert (find(maintained, "manifests")["replaced"], find(maintained, "expire")["snapshots"]) == (3, 3)
    commit.commit_all_or_raise(lake.catalog, [staged])
    assert ids_of(lake.catalog, path) == [0, 1, 2, 3]


# The command


KILLED_AT: Final = """
import os, signal, sys
from connector import command_line
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

owner, name = {"commit": (SqlCatalog, "commit_table"), "delete": (PyArrowFileIO, "delete")}[sys.argv[1]]
original, left = getattr(owner, name), list(range(int(sys.argv[2])))

def count(*arguments, **keywords):
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left.pop()
    return original(*arguments, **keywords)

setattr(owner, name, count)
sys.exit(command_line.main(sys.argv[3:]))
"""


@pytest.mark.spark
@pytest.mark.crash
def test_data_files_are_compacted_also_after_a_run_that_was_killed(lake: Lake, left: str) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({MIN_INPUT_FILES: "2"})
    for number in range(4, 8):
        value = lake.commit(number, prev=fence.read_value(lake.table.properties, WRITER)).next
    planned = find(lake.maintain("compact", "--dry-run"), "compact")
    assert (planned["files"], planned["groups"], planned["rows"]) == (7, 1, 7)
    command = [sys.executable, "-c", KILLED_AT, "commit", "0", "maintain", "compact", "--config", str(lake.config)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert [path.name for path in files_of(lake) if path.name.startswith("compact-") and path.suffix == ".parquet"]
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3, 4, 5, 6, 7]
    staged = stage(lake.catalog, ORDERS, WRITER, 8, prev=value)
    done = run(lake, "all", "--json", "--spark", "master=local[1]")
    assert (done.returncode, done.stderr.count("compact shop.orders: done")) == (0, 1)
    compacted = find(json.loads(done.stdout), "compact")
    assert (compacted["files"], compacted["newFiles"], compacted["bytes"]) == (7, 1, planned["bytes"])
    commit.commit_all_or_raise(lake.catalog, [staged])
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not place_of(left).exists()
    assert len([path for path in files_of(lake) if path.name.startswith("compact-") and path.suffix == ".parquet"]) == 2


@pytest.mark.spark
@pytest.mark.usefixtures("left")
def test_data_files_of_an_older_partition_spec_are_rewritten(lake: Lake) -> None:
    with lake.table.update_spec() as update:
        update.add_field("id", TruncateTransform(2), "pair")
    assert find(lake.maintain("compact", "--dry-run"), "compact")["files"] == 0
    planned = find(lake.maintain("compact", "--rearrange", "--dry-run"), "compact")
    assert (planned["files"], planned["groups"], planned["rows"]) == (3, 1, 3)
    done = run(lake, "compact", "--rearrange", "--json")
    rearranged = find(json.loads(done.stdout), "compact")
    assert (rearranged["files"], rearranged["newFiles"], rearranged["bytes"]) == (3, 2, planned["bytes"])
    partitions = [file.file.partition[0] for file in lake.table.scan().plan_files()]
    assert (sorted(partitions), ids_of(lake.catalog, ORDERS)) == ([0, 2], [1, 2, 3])
    assert find(lake.maintain("compact", "--rearrange", "--dry-run"), "compact")["files"] == 0


@pytest.mark.crash
@pytest.mark.parametrize("place", ["commit 0", "commit 1", "delete 0", "delete 3"])
def test_a_run_that_is_killed_leaves_a_good_table(lake: Lake, left: str, place: str) -> None:
    """Before the commits of `manifests` and `expire`, and while files are deleted."""
    command = [sys.executable, "-c", KILLED_AT, *place.split(), "maintain", "all", "--config", str(lake.config)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3]
    value = fence.read_value(lake.table.properties, WRITER)
    for number in (4, 5):
        value = lake.commit(number, prev=value).next
    lake.maintain("all")
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3, 4, 5]
    assert not place_of(left).exists()
    # The files of the interrupted run went with the others, except those of its newest fence value.
    again = lake.commit(6, prev=value)
    lake.commit(7, prev=again.next)
    lake.maintain("all")
    assert {path.name for path in files_of(lake) if path.suffix != ".json"} == _referred_to(lake.table)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_without_a_word(lake: Lake, left: str, number: signal.Signals) -> None:
    interrupted = KILLED_AT.replace("SIGKILL", number.name)
    command = [sys.executable, "-c", interrupted, "commit", "0", "maintain", "all", "--config", str(lake.config)]
    with heeded_signals():
        ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (128 + number, "")
    assert "Traceback" not in ended.stderr
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3]
    assert place_of(left).exists()


@pytest.mark.spark
@pytest.mark.usefixtures("left")
def test_a_signal_ends_a_compaction_and_leaves_no_process_and_no_temporary_file(lake: Lake, tmp_path: Path) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({MIN_INPUT_FILES: "2"})
    interrupted, temporary, mark = KILLED_AT.replace("SIGKILL", "SIGTERM"), tmp_path / "temporary", new_mark()
    temporary.mkdir()
    command = [sys.executable, "-c", interrupted, "commit", "0", "maintain", "compact", "--config", str(lake.config)]
    environment = {**os.environ, **mark, "TMPDIR": str(temporary)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "")
    assert wait_until(lambda: not marked(mark))
    assert not [*temporary.iterdir()]
    assert ids_of(lake.catalog, ORDERS) == [1, 2, 3]


def _referred_to(table: Table) -> set[str]:
    """The manifest lists, manifests and data files of all snapshots."""
    locations = set[str]()
    for snapshot in table.snapshots():
        locations.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            locations.add(manifest.manifest_path)
            locations.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
    return {place_of(location).name for location in locations}


# The table `aaa` fails at once, and the others begin a little later.
FAILS_FOR_THE_FIRST: Final = """
import sys, time
from connector import command_line
from connector.iceberg.maintenance import perform_actions

def fail(table):
    if table.name()[-1] == "aaa":
        raise KeyError("a defect")
    time.sleep(0.3)
    return has_expired(table)

has_expired, perform_actions.has_expired = perform_actions.has_expired, fail
sys.exit(command_line.main(sys.argv[1:]))
"""


def run(lake: Lake, *arguments: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    program = ["-c", script] if script else ["-m", "connector"]
    command = [sys.executable, *program, "maintain", *arguments, "--config", str(lake.config)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.usefixtures("left")
def test_the_exit_status_says_that_a_table_failed(lake: Lake) -> None:
    done = run(lake, "all")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "table shop.orders")
    assert "manifests shop.orders: done" in done.stderr
    failed = run(lake, "all", "--json", "--table", "shop.missing")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["errors"] == [{"table": "shop.missing", "message": "the table does not exist."}]
    one = run(lake, "all", "--table", "shop.missing", "--table", "shop.orders")
    assert (one.returncode, "missing" in one.stdout) == (1, False)
    for said in (failed, one):
        assert said.stderr.splitlines()[-1].endswith("error table shop.missing: the table does not exist.")
