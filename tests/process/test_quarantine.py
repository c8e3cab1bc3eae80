"""Rejected rows are in their table exactly once, whatever becomes of the process that rejected them."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fixtures.collection import Field
from support.engines.readers import readers_catalog, unreferenced_files
from support.rows.staged_files import finished_state
from support.rows.updating_source import UpdatingSource
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

AMOUNTS = replace(
    LEDGER,
    fields=(*LEDGER.fields, Field("amount", "/amount", ("integer",))),
    settings={"on_invalid": "quarantine"},
)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path, [AMOUNTS], environment={"LOG_FORMAT": "json"})


def good(key: int) -> Any:
    return {"id": key, "amount": key}


def bad(key: int) -> Any:
    return {"id": key, "amount": f"{key} pounds"}


def rows(directory: Path, table: str) -> list[Any]:
    return list(readers_catalog(directory / "warehouse").load_table(("shop", table)).scan().to_arrow().to_pylist())


def keys(directory: Path) -> tuple[list[int], list[int]]:
    """Of the rows that landed, and of those that were rejected."""
    landed = [row["id"] for row in rows(directory, "ledger")]
    rejected = [json.loads(row["key"])[0] for row in rows(directory, "ledger__rejected")]
    return sorted(landed), sorted(rejected)


def test_a_transaction_lands_in_both_tables_and_says_so(runtime: Runtime, tmp_path: Path) -> None:
    with runtime.open(publish=True) as session:
        session.flush()
        session.store(good(1), bad(2), good(3), bad(4))
        session.start_commit()
        assert keys(tmp_path) == ([], [])
        session.acknowledge()
        session.transaction(good(5))
        session.transaction(bad(6))

        assert keys(tmp_path) == ([1, 3, 5], [2, 4, 6])
        [row] = [row for row in rows(tmp_path, "ledger__rejected") if row["key"] == "[4]"]
        assert (row["reason"], row["field"]) == ("is not an integer of 64 bits", "amount")
        assert json.loads(row["document"]) == {**bad(4), "note": None, "flow_document": bad(4)}
        assert runtime.log == finished_state(
            LEDGER.state_key,
            *map(readers_catalog(tmp_path / "warehouse").load_table, ("shop.ledger", "shop.ledger__rejected")),
        )
        check_records(tmp_path / "connector.log")
        session.stage_and_die(good(7), bad(8))

    # What was staged lands though quarantine has been turned off.
    stopping = Runtime(tmp_path, [replace(AMOUNTS, settings={})])
    stopping.log = runtime.log
    with stopping.open(publish=True) as session:
        session.transaction(good(9))
        assert session.finish().status == 0
    assert keys(tmp_path) == ([1, 3, 5, 7, 9], [2, 4, 6, 8])


def check_records(log: Path) -> None:
    """A session says how many rows each transaction has rejected, and the first time also why."""
    told = list(map(json.loads, log.read_text().splitlines()))
    assert [record["rejected"] for record in told if "rejected" in record] == [2, 0, 1]
    assert [record["msg"] for record in told if record["level"] == "warn"] == [
        "table shop.ledger, field 'amount': 2 row(s) go to the table of rejected rows, such as that of "
        'key [2]: "2 pounds" is not an integer of 64 bits; this warning appears once for each session'
    ]


@pytest.mark.slow  # tests/session/test_staged_transactions.py has the ratio, and the error
def test_too_many_rejected_rows_stop_the_task_and_none_of_the_transaction_lands(
    runtime: Runtime, tmp_path: Path
) -> None:
    with runtime.open(publish=True) as session:
        session.transaction(*map(good, range(50)), *map(bad, range(50, 100)))
        session.flush()
        session.store(good(100), *map(bad, range(101, 160)))
        session.send_start_commit()
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert outcome.kinds[-1] == "flushed"
    assert "table shop.ledger: of the last 160 rows 109 were rejected" in outcome.last_log_line
    assert keys(tmp_path) == (list(range(50)), list(range(50, 100)))
    assert unreferenced_files(tmp_path, "ledger", "ledger__rejected") == []


def test_a_rejected_version_of_an_updated_row_deletes_the_version_before(tmp_path: Path) -> None:
    """After each transaction, the table has the last version of each key, or no row if that version was rejected."""
    updated = replace(AMOUNTS, settings={**AMOUNTS.settings, "delta_updates": False, "max_rejected_ratio": 1})
    rejected: list[Any] = []

    def make(key: Any, version: int) -> Any:
        return {"id": key[0], "amount": version if version % 3 else f"{version} pounds"}

    def is_rejected(document: Any) -> bool:
        is_bad = isinstance(document["amount"], str)
        rejected.extend([document["amount"]] * is_bad)
        return is_bad

    source = UpdatingSource(updated, make, Random(1), is_rejected=is_rejected)
    runtime = Runtime(tmp_path, [updated])
    with runtime.open(publish=True) as session:
        for _ in range(5):
            source.transact(session, [[key] for key in source.random.sample(range(40), 25)], deleted=0.2)
            found = sorted((row["id"], row["amount"]) for row in rows(tmp_path, "ledger"))
            assert found == sorted((each["id"], each["amount"]) for each in source.documents.values())
            documents = [json.loads(row["document"]) for row in rows(tmp_path, "ledger__rejected")]
            assert sorted(each["amount"] for each in documents) == sorted(rejected)
        assert session.finish().status == 0
    assert len(rejected) > 30
    assert len(source.documents) > 10
