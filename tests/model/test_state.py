"""What startedCommit persists and a successor reads back."""

from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest

from connector.model import state
from connector.model.binding import KeyPart, Updates
from connector.model.state import (
    VERSION,
    ColumnStatistics,
    DataFile,
    Entry,
    EntryBase,
    FileList,
    FinishedCommit,
    LocatedRowsFile,
    StagedCommit,
    StagedTransaction,
    WriterId,
)
from connector.model.state_reader import ADDED_IN, read_finished, read_state
from support.bindings import PATH
from support.sessions.runtime import merged

UUID, OTHER_UUID = "0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6", "5c1c40a4-57a8-4a53-9d25-0b9f7a7ef7a6"
FILE = DataFile("file:///w/a.parquet", 3, 812, (4, 400), (ColumnStatistics(1, 40, 3, 0, b"\x00", b"\xff"),))


def staged(
    next: str, prev: str = "", key_range: str = "00000000-ffffffff", state_key: str = "orders.v1"
) -> StagedCommit:
    writer = WriterId("acme/orders", state_key, key_range)
    return StagedCommit(writer, value_of(prev), value_of(next), PATH, UUID, 0, 2, (FILE,), "c0ffee")


def value_of(digit: str) -> str:
    return digit * 32  # none for ""


def on_the_wire(patch: Any) -> Any:
    return orjson.loads(orjson.dumps(patch))


def test_staged_commits_survive_the_runtimes_log() -> None:
    commits = [
        staged("b", prev="a"),
        staged("c", prev="b"),
        staged("d", state_key="items.v1"),
        staged("e", key_range="00000000-7fffffff"),
    ]
    log: Any = {"somebody": "else's"}
    for commit in commits:
        log = merged(log, on_the_wire(state.encode_added([commit])))
    assert sorted(read_state("acme/orders", log), key=lambda commit: commit.next) == commits


def test_what_a_shard_of_a_single_key_has_kept_is_read() -> None:
    before, commit = (staged(next, key_range="80000000-80000000") for next in "ab")
    log = merged(None, on_the_wire(state.encode_removed([before])))
    log = merged(log, on_the_wire(state.encode_added([commit])))
    assert read_state("acme/orders", log) == [commit]
    assert read_finished("acme/orders", log) == [FinishedCommit(commit.writer, UUID, value_of("a"))]


def test_a_list_of_files_outside_the_state_survives_too() -> None:
    listed = replace(staged("b"), files=FileList("file:///w/a-files.json", 200, 6000, 162_400))
    patch = on_the_wire(state.encode_added([listed]))
    assert read_state("acme/orders", patch) == [listed]
    assert (listed.file_count, listed.rows, listed.size) == (200, 6000, 162_400)
    assert "files" not in patch["bindingStates"]["orders.v1"]["00000000-ffffffff"][value_of("b")]


def test_removing_what_landed_leaves_the_rest_alone() -> None:
    log = merged(None, on_the_wire(state.encode_added([staged("b"), staged("c", prev="b")])))
    log = merged(log, on_the_wire(state.encode_removed([staged("b")])))
    assert read_state("acme/orders", log) == [staged("c", prev="b")]


def test_of_what_was_removed_the_newest_of_each_writer_and_table_is_kept() -> None:
    left = "00000000-7fffffff"
    of_other_table = replace(staged("9"), table_uuid=OTHER_UUID)
    commits = [staged("c", prev="b"), staged("b"), staged("a", key_range=left), of_other_table]
    log = merged(None, on_the_wire(state.encode_removed(commits)))
    of = staged("d").writer
    assert read_finished("acme/orders", log)[0] == FinishedCommit(of, UUID, value_of("c")), "in whatever order"
    log = merged(log, on_the_wire(state.encode_removed([staged("d", prev="c")])))
    assert read_state("acme/orders", log) == []
    assert read_finished("acme/orders", log) == [
        FinishedCommit(of, UUID, value_of("d")),
        FinishedCommit(of, OTHER_UUID, value_of("9")),
        FinishedCommit(replace(of, key_range=left), UUID, value_of("a")),
    ]


def test_a_state_of_an_image_that_keeps_no_finished_commits_has_none() -> None:
    for log in (None, {}, {"finished": None}, on_the_wire(state.encode_added([staged("b")]))):
        assert read_finished("acme/orders", log) == []


def test_a_patch_names_only_its_own_entries() -> None:
    assert state.encode_removed([staged("b")]) == {
        "bindingStates": {"orders.v1": {"00000000-ffffffff": {value_of("b"): None}}},
        "finished": {"orders.v1": {"00000000-ffffffff": {UUID: value_of("b")}}},
    }


def test_the_shape_of_the_state_is_stable() -> None:
    """Change the version with it: another image would read the entry as something else."""
    assert on_the_wire(state.encode_added([staged("b", prev="a")])) == {
        "bindingStates": {
            "orders.v1": {
                "00000000-ffffffff": {
                    value_of("b"): {
                        "version": 6,
                        "prev": value_of("a"),
                        "table": ["shop", "orders"],
                        "tableUuid": UUID,
                        "specId": 0,
                        "schemaId": 2,
                        "checkpoint": "c0ffee",
                        "files": [
                            {
                                "path": "file:///w/a.parquet",
                                "rows": 3,
                                "size": 812,
                                "splits": [4, 400],
                                "columns": [[1, 40, 3, 0, "AA==", "/w=="]],
                            }
                        ],
                    }
                }
            }
        }
    }


# What an image left in a task's state before entries had a version.
VERSION_1 = """
{"bindingStates": {"shop%2Forders.v0": {"00000000-ffffffff": {
    "00000007ad4a2a04f45cf4cb0c2c1f52": {
        "path": ["shop", "orders"], "tableUuid": "0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6", "specId": 0, "schemaId": 3,
        "files": [{"path": "s3://lake/shop/orders/data/1.parquet", "rows": 3, "size": 812, "splits": [4, 400],
                   "columns": [[1, 40, 3, 0, "AA==", "/w=="], [2, 31, 3, null, null, null]]}],
        "checkpoint": "4f53cda18c2baa0c", "prev": "closed:00000006c3f51ab60e9c41b58ed0e7d3"},
    "00000008d91c1f5b7c0a4e55a3be0d11": {
        "path": ["shop", "orders"], "tableUuid": "0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6", "specId": 0, "schemaId": 3,
        "fileList": ["s3://lake/shop/orders/data/2-files.json", 200, 6000, 162400],
        "checkpoint": "a1b2c3d4e5f60718", "prev": "00000007ad4a2a04f45cf4cb0c2c1f52"}
}}}}
"""


# The same of an image that staged no deletes.
VERSION_2 = VERSION_1.replace('"path": ["shop"', '"version": 2, "table": ["shop"')


def test_rows_that_a_commit_deletes_survive_the_state() -> None:
    located = LocatedRowsFile("file:///w/a-located.parquet", 20, 7)
    commits = [replace(staged("b"), located=located), replace(staged("c", prev="b"), files=(), located=located)]
    patch = on_the_wire(state.encode_added(commits))
    assert read_state("acme/orders", patch) == commits
    assert list(commits[0].locations) == ["file:///w/a.parquet", "file:///w/a-located.parquet"]


def test_where_rows_have_their_keys_survives_the_state() -> None:
    updates = Updates((KeyPart(1, "/id"), KeyPart(2, "/code", "none", is_exact=False)), 3, hard_delete=True)
    commit = replace(staged("b"), updates=updates, located=LocatedRowsFile(None, 0, 7))
    assert read_state("acme/orders", on_the_wire(state.encode_added([commit]))) == [commit]
    assert list(commit.locations) == ["file:///w/a.parquet"]


def test_entries_of_an_image_that_did_not_note_where_rows_have_their_keys_are_read() -> None:
    commit = replace(staged("b"), published_column_id=7, offsets='{"acmeCo/orders/pivot=00":12}')
    patch = on_the_wire(state.encode_added([commit]))
    [entry] = patch["bindingStates"]["orders.v1"]["00000000-ffffffff"].values()
    entry["version"] = 5
    assert read_state("acme/orders", patch) == [commit]


def test_partitions_and_the_sort_order_survive_the_state() -> None:
    file = msgspec.structs.replace(FILE, partition=(b"\x00\xff", None, b""))
    commit = replace(staged("b"), files=(file,), spec_id=3, sort_order_id=2)
    assert read_state("acme/orders", on_the_wire(state.encode_added([commit]))) == [commit]


def test_what_is_known_of_the_freshness_survives_the_state() -> None:
    commit = replace(staged("b"), published_column_id=7, offsets='{"acmeCo/orders/pivot=00":12}')
    assert read_state("acme/orders", on_the_wire(state.encode_added([commit]))) == [commit]


def test_entries_of_an_image_that_noted_no_freshness_are_read() -> None:
    file = msgspec.structs.replace(FILE, partition=(b"\x00", None))
    commit = replace(staged("b"), files=(file,), spec_id=3, sort_order_id=2)
    patch = on_the_wire(state.encode_added([commit]))
    [entry] = patch["bindingStates"]["orders.v1"]["00000000-ffffffff"].values()
    entry["version"] = 4
    assert read_state("acme/orders", patch) == [commit]


def test_entries_of_an_image_that_knew_no_partitions_are_read() -> None:
    commit = replace(staged("b"), located=LocatedRowsFile("file:///w/a-located.parquet", 20, 7))
    patch = on_the_wire(state.encode_added([commit]))
    [entry] = patch["bindingStates"]["orders.v1"]["00000000-ffffffff"].values()
    entry["version"] = 3
    assert read_state("acme/orders", patch) == [commit]


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("00000000-7fffffff", "80000000-ffffffff", False),
        ("00000000-7fffffff", "7fffffff-ffffffff", True),
        ("00000000-ffffffff", "80000000-80000000", True),
        ("80000000-80000000", "80000000-80000000", True),
        ("00000000-7fffffff", "80000000-80000000", False),
    ],
)
def test_key_ranges_overlap_if_they_have_a_key_in_common(one: str, other: str, overlap: bool) -> None:
    """Both ends belong to a key range."""
    assert WriterId("acme/orders", "orders.v1", one).overlaps(other) is overlap
    assert WriterId("acme/orders", "orders.v1", other).overlaps(one) is overlap


def test_the_size_of_a_transaction_is_that_of_its_data_files() -> None:
    assert StagedTransaction((staged("b"), staged("c", prev="b"))).size == 2 * FILE.size
    assert StagedTransaction((replace(staged("b"), files=()),)).size == 0, "it only deletes rows"
    assert StagedTransaction().size is None


def test_entries_of_an_image_that_staged_no_deletes_are_read() -> None:
    state_of_version_1, state_of_version_2 = orjson.loads(VERSION_1), orjson.loads(VERSION_2)
    assert read_state("acme/orders", state_of_version_2) == read_state("acme/orders", state_of_version_1)


def test_entries_of_an_image_that_knew_no_versions_are_read() -> None:
    writer = WriterId("acme/orders", "shop%2Forders.v0", "00000000-ffffffff")
    columns = ColumnStatistics(1, 40, 3, 0, b"\x00", b"\xff"), ColumnStatistics(2, 31, 3, None, None, None)
    assert read_state("acme/orders", orjson.loads(VERSION_1)) == [
        StagedCommit(
            writer,
            prev="closed:00000006c3f51ab60e9c41b58ed0e7d3",
            next="00000007ad4a2a04f45cf4cb0c2c1f52",
            path=PATH,
            table_uuid="0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6",
            spec_id=0,
            schema_id=3,
            files=(DataFile("s3://lake/shop/orders/data/1.parquet", 3, 812, (4, 400), columns),),
            checkpoint="4f53cda18c2baa0c",
        ),
        StagedCommit(
            writer,
            prev="00000007ad4a2a04f45cf4cb0c2c1f52",
            next="00000008d91c1f5b7c0a4e55a3be0d11",
            path=PATH,
            table_uuid="0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6",
            spec_id=0,
            schema_id=3,
            files=FileList("s3://lake/shop/orders/data/2-files.json", 200, 6000, 162_400),
            checkpoint="a1b2c3d4e5f60718",
        ),
    ]


def test_each_field_that_a_later_version_has_added_is_known_with_this_version() -> None:
    """An older image must refuse it, also in an entry that names an older version."""
    first = {*EntryBase.__struct_encode_fields__, "table"}
    assert ADDED_IN.keys() == {*Entry.__struct_encode_fields__} - first
    assert max(ADDED_IN.values()) == VERSION


class EntryAsItWas(msgspec.Struct, rename="camel"):
    """How an image that knows no versions reads an entry: it passes over every field that it does not know."""

    path: tuple[str, str]
    table_uuid: str
    spec_id: int
    schema_id: int
    files: tuple[DataFile, ...] = ()
    file_list: FileList | None = None
    checkpoint: str = ""
    prev: str = ""


def test_an_image_that_knows_no_versions_refuses_an_entry_that_has_one() -> None:
    """It would not see what a later version adds to an entry, apply the rest, and delete the entry."""
    patch = on_the_wire(state.encode_added([staged("b", prev="a")]))
    [entry] = patch["bindingStates"]["orders.v1"]["00000000-ffffffff"].values()
    with pytest.raises(msgspec.ValidationError, match="missing required field `path`"):
        msgspec.convert(entry, EntryAsItWas)


def test_a_table_that_was_made_anew_has_a_chain_of_its_own() -> None:
    """A session may have opened on the new one while the catalog did not say that the old one is gone."""
    of_new_table = [replace(staged(next, prev), table_uuid=OTHER_UUID) for next, prev in (("e", ""), ("f", "e"))]
    commits = [staged("b"), staged("c", prev="b"), *of_new_table]
    assert read_state("acme/orders", on_the_wire(state.encode_added(commits))) == commits
    assert len({commit.chain_id for commit in commits}) == 2


def test_no_state_has_no_entries() -> None:
    assert not read_state("acme/orders", None)
    assert not read_state("acme/orders", {"bindingStates": {"orders.v1": {"00000000-ffffffff": {}}}})
