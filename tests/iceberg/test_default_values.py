"""Rows of files without a column keep its default value, or its partition's, however their files are written again."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
)

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import FileList
from support.bindings import PATH
from support.rows.staged_files import stage
from support.rows.staged_rows import WRITER, divide
from support.tables.altered_tables import ID, filled_table, fit, rows, wanted
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import local_catalog, upgrade_to_version_3

# By type: the default as the metadata has it, and as Python reads it.
DEFAULTS: Final[dict[PrimitiveType, tuple[Any, Any]]] = {
    LongType(): (7, 7),
    DoubleType(): (0.5, 0.5),
    BooleanType(): (True, True),
    StringType(): ("new", "new"),
    DecimalType(9, 2): ("12.50", Decimal("12.50")),
    DateType(): ("2026-11-23", date(2026, 11, 23)),
    TimestamptzType(): ("2026-11-23T12:00:00+00:00", datetime(2026, 11, 23, 12, tzinfo=UTC)),
    BinaryType(): ("00ff", b"\x00\xff"),
    TimestampNanoType(): ("2026-11-23T12:00:00.000005000", datetime.fromisoformat("2026-11-23T12:00:00.000005")),
    TimestamptzNanoType(): ("2026-11-23T12:00:00+00:00", datetime(2026, 11, 23, 12, tzinfo=UTC)),
}
OF_VERSION_3: Final = (TimestampNanoType(), TimestamptzNanoType())

TYPES: Final = dict(zip("abcdefghij", DEFAULTS, strict=True))
VALUES: Final = {name: DEFAULTS[type_][1] for name, type_ in TYPES.items()}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A table with columns that are newer than its rows."""
    filled_table(catalog, ID, rows=[[{"id": number}] for number in range(4)])
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)
    upgrade_to_version_3(catalog, PATH)
    add_columns(catalog)
    return catalog


def add_columns(catalog: Catalog) -> None:
    """As another engine does it: by a new schema in the metadata file."""
    file = Path(catalog.load_table(PATH).metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    [schema] = metadata["schemas"]
    fields = [
        {"id": number, "name": name, "type": str(type_), "required": name == "a", "initial-default": DEFAULTS[type_][0]}
        for number, (name, type_) in enumerate(TYPES.items(), 2)
    ]
    added = {**schema, "schema-id": 1, "fields": [*schema["fields"], *fields]}
    metadata |= {"schemas": [schema, added], "current-schema-id": 1, "last-column-id": 1 + len(fields)}
    file.write_text(json.dumps(metadata))


def test_compacted_rows_keep_the_defaults_of_columns_that_their_files_lack(catalog: Catalog) -> None:
    before = rows(catalog)
    assert before == [{"id": number, **VALUES} for number in range(4)]
    assert compact(catalog, PATH).files_after == 1
    assert rows(catalog) == before


def test_compacted_rows_keep_the_partition_values_of_columns_that_their_files_lack(tmp_path: Path) -> None:
    """Other engines may leave out of a file what its partition says."""
    catalog = local_catalog(tmp_path)
    types = {name: type_ for name, type_ in TYPES.items() if type_ not in OF_VERSION_3}
    columns = [NestedField(number, name, type_) for number, (name, type_) in enumerate(types.items(), 2)]
    spec = PartitionSpec(
        *(PartitionField(each.field_id, 998 + each.field_id, IdentityTransform(), each.name) for each in columns)
    )
    table = filled_table(catalog, ID, *columns, spec=spec)
    with table.transaction() as transaction:
        transaction.set_properties(EAGER)
    values = {name: VALUES[name] for name in types} | {"a": None}
    [(partition, _)] = divide(table, [{"id": 0, **values}])
    for number in range(4):
        staged = stage(catalog, PATH, WRITER, number)
        assert not isinstance(staged.files, FileList)
        files = tuple(msgspec.structs.replace(file, partition=partition) for file in staged.files)
        commit_all_or_raise(catalog, [replace(staged, files=files)])
    before = rows(catalog)
    assert before == [{"id": number, **values} for number in range(4)]
    assert compact(catalog, PATH).files_after == 1
    assert rows(catalog) == before


def test_a_converted_column_keeps_its_default(catalog: Catalog) -> None:
    columns = [wanted("id", LongType()), *(wanted(name, type_) for name, type_ in TYPES.items())]
    fit(catalog, columns[0], wanted("a", StringType()), *columns[2:])
    assert rows(catalog) == [{"id": number, **VALUES, "a": "7"} for number in range(4)]


@pytest.mark.parametrize("text", ["2026-11-23T12:00:00.123456789", "1969-12-31T23:59:59.999999999"])
@pytest.mark.parametrize("type_", [TimestampNanoType(), TimestamptzNanoType()])
def test_metadata_that_is_written_again_keeps_the_nanoseconds_of_defaults(type_: PrimitiveType, text: str) -> None:
    default = text + ("+00:00" if type_ == TimestamptzNanoType() else "")
    column = {"id": 1, "name": "at", "type": str(type_), "initial-default": default, "write-default": default}
    written = NestedField.model_validate(column | {"required": False}).model_dump_json()
    assert {name: json.loads(written)[name] for name in column} == column
