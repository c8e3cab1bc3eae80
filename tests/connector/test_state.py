"""What startedCommit persists and a successor reads back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from connector import state
from connector.errors import UserError
from connector.state import ColumnStatistics, DataFile, FileList, Lineage, StagedCommit
from support.runtime import merged
from support.snapshots import check_text

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "session_errors.json"
FILE = DataFile("file:///w/a.parquet", 3, 812, (4, 400), (ColumnStatistics(1, 40, 3, 0, b"\x00", b"\xff"),))


def staged(
    next: str, prev: str = "", key_range: str = "00000000-ffffffff", state_key: str = "orders.v1"
) -> StagedCommit:
    return StagedCommit(
        Lineage("acme/orders", state_key, key_range), prev, next, ("shop", "orders"), "a-uuid", 0, 2, (FILE,), "c0ffee"
    )


def on_the_wire(patch: Any) -> Any:
    return orjson.loads(orjson.dumps(patch))


def test_staged_commits_survive_the_runtimes_log() -> None:
    commits = [
        staged("b", prev="a"),
        staged("c", prev="b"),
        staged("d", state_key="items.v1"),
        staged("e", key_range="0-1"),
    ]
    log: Any = {"somebody": "else's"}
    for commit in commits:
        log = merged(log, on_the_wire(state.added([commit])))
    assert sorted(state.entries("acme/orders", log), key=lambda commit: commit.next) == commits


def test_a_list_of_files_outside_the_state_survives_too() -> None:
    listed = replace(staged("b"), files=FileList("file:///w/a-files.json", 200, 6000, 162_400))
    patch = on_the_wire(state.added([listed]))
    assert list(state.entries("acme/orders", patch)) == [listed]
    assert (listed.file_count, listed.rows, listed.size) == (200, 6000, 162_400)
    assert "files" not in patch["bindingStates"]["orders.v1"]["00000000-ffffffff"]["b"]


def test_removing_what_landed_leaves_the_rest_alone() -> None:
    log = merged(None, on_the_wire(state.added([staged("b"), staged("c", prev="b")])))
    log = merged(log, on_the_wire(state.removed([staged("b")])))
    assert list(state.entries("acme/orders", log)) == [staged("c", prev="b")]


def test_a_patch_names_only_its_own_entries() -> None:
    assert state.removed([staged("b")]) == {"bindingStates": {"orders.v1": {"00000000-ffffffff": {"b": None}}}}


def test_the_shape_of_the_state_is_stable() -> None:
    """Sessions of an older version leave entries in this shape."""
    assert on_the_wire(state.added([staged("b", prev="a")])) == {
        "bindingStates": {
            "orders.v1": {
                "00000000-ffffffff": {
                    "b": {
                        "prev": "a",
                        "path": ["shop", "orders"],
                        "tableUuid": "a-uuid",
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


def test_no_state_has_no_entries() -> None:
    assert not list(state.entries("acme/orders", None))
    assert not list(state.entries("acme/orders", {"bindingStates": {"orders.v1": {"00000000-ffffffff": {}}}}))


@pytest.mark.parametrize(
    "log",
    [
        5,
        {"bindingStates": 5},
        {"bindingStates": {"orders.v1": "staged"}},
        {"bindingStates": {"orders.v1": {"00000000-ffffffff": ["b"]}}},
        {"bindingStates": {"orders.v1": {"00000000-ffffffff": {"b": {"path": ["shop"]}}}}},
    ],
)
def test_a_state_of_another_shape_is_refused(log: Any) -> None:
    with pytest.raises(UserError) as error:
        list(state.entries("acme/orders", log))
    check_text(SNAPSHOTS, f"the state {log}", str(error.value), {})
