"""A task whose image was the public S3 Iceberg connector's goes on with this one, and loses no rows by it."""

from pathlib import Path
from typing import Any

import pytest

from connector.host.errors import UserError
from connector.model.state_reader import check_estuary_staged_nothing, read_state
from support.sessions.runtime import Runtime, merged
from support.snapshots import check_text

STATE_KEY = "shop%2Forders.v1"
FILES = ["s3://lake/shop/orders/data/1.parquet", "s3://lake/shop/orders/data/2.parquet"]


def left(files: Any, state_key: str = STATE_KEY) -> Any:
    return {
        "bindingStates": {state_key: {"previousCheckpoint": "0123", "currentCheckpoint": "4567", "fileKeys": files}}
    }


@pytest.mark.parametrize("files", [None, []])
def test_what_it_has_added_is_no_concern_of_ours(files: Any) -> None:
    check_estuary_staged_nothing(left(files), [STATE_KEY])
    ours: Any = {"bindingStates": {STATE_KEY: {"00000000-ffffffff": {}}}}
    assert read_state("acme/orders", merged(left(files), ours)) == []


def test_what_it_may_not_have_added_is_named() -> None:
    with pytest.raises(UserError) as error:
        check_estuary_staged_nothing(left(FILES), [STATE_KEY])
    check_text("session_errors", "the public connector has staged files", str(error.value))


def test_what_is_no_list_of_files_is_refused() -> None:
    with pytest.raises(UserError) as error:
        check_estuary_staged_nothing(left(5), [STATE_KEY])
    check_text("session_errors", "the public connector's files are no list", str(error.value))


def test_what_it_has_staged_for_a_table_that_is_made_anew_is_not_missed() -> None:
    check_estuary_staged_nothing(left(FILES), ["shop%2Forders.v2"])
    assert read_state("acme/orders", left(FILES)) == []


@pytest.mark.spark
def test_no_session_opens_while_it_may_not_have_added_them(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.log = left(FILES, "shop%2Fledger.v0")
    outcome = runtime.open_and_fail()
    assert outcome.status == 1
    assert "staged 2 data file(s) for shop%2Fledger.v0" in outcome.last_log_line
