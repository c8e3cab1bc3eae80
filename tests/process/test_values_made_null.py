"""A binding whose invalid values become null: its table, and what is said about it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.collection import Field
from support.engines.readers import ledger_table
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

AMOUNTS = replace(
    LEDGER,
    fields=(*LEDGER.fields, Field("amount", "/amount", ("integer",)), Field("paid", "/paid", ("integer",))),
    settings={"on_invalid": "null"},
)


def records(directory: Path) -> list[Any]:
    return list(map(json.loads, (directory / "connector.log").read_text().splitlines()))


def test_they_are_null_counted_in_every_transaction_and_said_once_a_session(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, [AMOUNTS], environment={"LOG_FORMAT": "json"})
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1, "amount": 5}, {"id": 2, "amount": "five"}, {"id": 3, "amount": 2**63})
        session.transaction({"id": 4, "amount": 1.5, "paid": 1}, {"id": 5, "amount": 6, "paid": []})
        assert session.finish().status == 0

    rows = ledger_table(tmp_path).scan().to_arrow().to_pylist()
    assert {row["id"]: (row["amount"], row["paid"]) for row in rows} == {
        1: (5, None),
        2: (None, None),
        3: (None, None),
        4: (None, 1),
        5: (6, None),
    }
    told = records(tmp_path)
    assert [record["nulled"] for record in told if "nulled" in record] == [2, 2]
    warnings = [record["msg"] for record in told if record["level"] == "warn"]
    assert [warning.partition(";")[0] for warning in warnings] == [
        "table shop.ledger, field 'amount': 2 value(s) that do not fit the column became null, "
        'such as that of key [2]: "five" is not an integer of 64 bits',
        "table shop.ledger, field 'paid': 1 value(s) that do not fit the column became null, "
        "such as that of key [5]: [] is not an integer of 64 bits",
    ]
