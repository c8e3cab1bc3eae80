"""Whatever a collection looks like and its documents hold: what is validated, applied, stored and read back is what an
independent reading of the same lines says."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings

from evolution.local_task import LocalTask
from evolution.random_collections import Drawn, collections
from fixtures.collection import DOCUMENT, NAMESPACE, Collection, Field
from fixtures.conversation import line
from protocol.flow import ConstraintType
from support.engines.canonical_rows import read_by_pyiceberg
from support.rows.expected_rows import Row, expected_tables
from support.tables.local_tables import local_catalog

REFUSED: Final = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTask]:
    warehouse = tmp_path_factory.mktemp("any-collection")
    with closing(local_catalog(warehouse)) as catalog:
        yield LocalTask(warehouse, catalog)


@pytest.mark.long
@given(collections())
@settings(max_examples=60)
def test_what_is_stored_is_read_back(task: LocalTask, drawn: Drawn) -> None:
    check(task, drawn)


@pytest.mark.slow  # minutes: a table is made for every example
@given(collections())
@settings(max_examples=3000)
def test_what_is_stored_is_read_back_whatever_it_is(task: LocalTask, drawn: Drawn) -> None:
    check(task, drawn)


def check(task: LocalTask, drawn: Drawn) -> None:
    whole = Collection("acmeCo/anything", f"t{uuid.uuid4().hex}", drawn.fields)
    selected = [field for field in drawn.fields if set(field.types) - {"null"}]
    constraints = task.validated(whole.validate_binding()).constraints
    allowed = {field for field, constraint in constraints.items() if constraint.type not in REFUSED}
    assert constraints.keys() == {field.name for field in (*drawn.fields, DOCUMENT)}
    assert allowed == {field.name for field in (*selected, DOCUMENT)}

    collection = replace(whole, fields=tuple(selected))
    binding = collection.open_binding()
    creation = task.applied(binding).action_description.splitlines()[-1]
    assert creation.startswith(f"create table {NAMESPACE}.{collection.table} (")
    table = task.landed(task.staged(binding, drawn.stores(selected)))
    plain = replace(drawn, is_packed=False)
    [expected] = expected_tables([task.opening(binding), line("flush", {}), *plain.stores(selected)]).values()
    assert {column.name: str(column.field_type) for column in table.schema().fields} == expected.columns
    assert [column.required for column in table.schema().fields] == [*map(is_required, selected), True]
    assert in_order(read_by_pyiceberg(table)) == in_order(expected.rows)

    again = task.validated(collection.validate_binding(), last=binding).constraints
    assert {constraint.type for constraint in again.values()} == {
        ConstraintType.FIELD_REQUIRED,
        ConstraintType.FIELD_OPTIONAL,
    }
    assert task.applied(binding, last=binding).action_description == ""


def is_required(field: Field) -> bool:
    return "null" not in field.types and (field.exists == "MUST" or field.default is not None)


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)
