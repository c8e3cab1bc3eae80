"""A task whose image was the public S3 Iceberg connector's goes on with this one, and loses no rows by it."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector.host.errors import UserError
from connector.model.estuary_state import ADDED_PROPERTY, check_files_are_added, read_added
from connector.model.state_reader import read_state
from support.sessions.runtime import Runtime, merged
from support.snapshots import check_text
from support.tables.local_tables import local_catalog

TASK = "acme/orders"
STATE_KEY = "shop%2Forders.v1"
FILES = ["s3://lake/shop/orders/data/1.parquet", "s3://lake/shop/orders/data/2.parquet"]


def left(files: Any, state_key: str = STATE_KEY) -> Any:
    return {
        "bindingStates": {state_key: {"previousCheckpoint": "0123", "currentCheckpoint": "4567", "fileKeys": files}}
    }


def added(checkpoint: Any, task: str = TASK) -> dict[str, str]:
    return {ADDED_PROPERTY: json.dumps({task: checkpoint})}


@pytest.mark.parametrize("files", [None, []])
def test_what_it_has_added_is_no_concern_of_ours(files: Any) -> None:
    check_files_are_added(left(files), STATE_KEY, {}, TASK)
    ours: Any = {"bindingStates": {STATE_KEY: {"00000000-ffffffff": {}}}}
    assert read_state(TASK, merged(left(files), ours)) == []


def test_what_the_table_says_that_it_has_added_is_no_concern_of_ours() -> None:
    assert read_added(added("4567")) == {TASK: "4567"}
    check_files_are_added(left(FILES), STATE_KEY, added("4567"), TASK)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        pytest.param(added("0123"), id="those of the transaction before"),
        pytest.param(added("4567", "acme/other"), id="those of another task"),
        pytest.param(added(4567), id="another form"),
        pytest.param({ADDED_PROPERTY: "{"}, id="cut short"),
        pytest.param({ADDED_PROPERTY: "[]"}, id="no object"),
        pytest.param({ADDED_PROPERTY: '{"acme/orders": ' + "[" * 100_000}, id="nested too deeply"),
    ],
)
def test_what_it_may_not_have_added_is_named(properties: dict[str, str]) -> None:
    with pytest.raises(UserError) as error:
        check_files_are_added(left(FILES), STATE_KEY, properties, TASK)
    check_text("session_errors", "the public connector has staged files", str(error.value))


def test_files_without_a_checkpoint_are_not_added() -> None:
    state: Any = {"bindingStates": {STATE_KEY: {"fileKeys": FILES}}}
    with pytest.raises(UserError, match="may not have added them"):
        check_files_are_added(state, STATE_KEY, {}, TASK)


def test_what_is_no_list_of_files_is_refused() -> None:
    with pytest.raises(UserError) as error:
        check_files_are_added(left(5), STATE_KEY, {}, TASK)
    check_text("session_errors", "the public connector's files are no list", str(error.value))


def test_what_it_has_staged_for_a_table_that_is_made_anew_is_not_missed() -> None:
    check_files_are_added(left(FILES), "shop%2Forders.v2", {}, TASK)
    assert read_state(TASK, left(FILES)) == []


@pytest.mark.slow  # the tests above read the same states without a session
@pytest.mark.spark
def test_no_session_opens_until_its_table_says_that_they_are_added(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()
    runtime.log = left(FILES, "shop%2Fledger.v0")
    outcome = runtime.open_and_fail()
    assert outcome.status == 1
    assert "staged 2 data file(s) for shop%2Fledger.v0" in outcome.last_log_line
    table = local_catalog(tmp_path / "warehouse").load_table(("shop", "ledger"))
    with table.transaction() as change:
        change.set_properties(added("4567", "acmeCo/task"))
    with runtime.open() as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    assert table.refresh().scan().to_arrow().num_rows == 1
