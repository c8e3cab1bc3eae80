"""Rows are found by keys of which their data file lacks a part. Other engines may leave out of a file what its
partition says, or the default of a column."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
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
    TimestamptzType,
)

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.search.row_search import search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import KeyPart, Updates
from connector.model.state import FileList, StagedCommit, WriterId
from support.bindings import PATH
from support.rows.staged_files import place_of
from support.rows.staged_rows import WRITER, staged
from support.rows.updated_rows import land, make_table, row, stage_updates, values_of
from support.tables.altered_tables import ID, filled_table
from support.tables.local_tables import upgrade_to_version_3

BY_ID: Final = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
DOCUMENT: Final = NestedField(3, "doc", StringType())
OTHER: Final = WriterId("another/engine", "orders", WRITER.key_range)
EQUAL: Any = EqualTo  # its constructor has no types

# By type: a value, and the same as a part of a key.
VALUES: Final[Mapping[PrimitiveType, tuple[Any, str]]] = {
    LongType(): (7, "7"),
    DoubleType(): (0.5, "0.5"),
    BooleanType(): (True, "true"),
    StringType(): ("new", '"new"'),
    DecimalType(9, 2): (Decimal("12.50"), '"12.50"'),
    DateType(): (date(2026, 11, 23), '"2026-11-23"'),
    TimestamptzType(): (datetime(2026, 11, 23, 12, tzinfo=UTC), '"2026-11-23T12:00:00Z"'),
    BinaryType(): (b"\x00\xff", '"AP8="'),
}


def without(column: str, commit: StagedCommit) -> StagedCommit:
    """The same transaction. Its files lack a column, as another engine writes them."""
    assert not isinstance(commit.files, FileList)
    files = []
    for file in commit.files:
        place = place_of(file.path)
        pq.write_table(pq.read_table(place).drop_columns([column]), place)
        files.append(msgspec.structs.replace(file, size=place.stat().st_size, columns=()))
    return replace(commit, files=tuple(files))


def find(catalog: Catalog, parts: Sequence[KeyPart], types: Sequence[PrimitiveType], *keys: str) -> list[str]:
    """The keys that the table has rows of."""
    table = catalog.load_table(PATH)
    texts = pa.array(keys, pa.string())
    names = [table.schema().find_field(part.column_id).name for part in parts]
    updates = Updates(tuple(parts), table.schema().find_field("doc").field_id)
    searched = SearchedKeys(keys_of_texts(texts, parts, types), updates, names)
    return [
        keys[place]
        for file in ViewFactory(ManifestCache()).make(table, ()).files
        for found in search(table.io, file, searched, with_documents=False)
        for place in found.keys
    ]


@pytest.mark.parametrize("column_type", VALUES, ids=str)
def test_a_key_is_found_that_only_the_partition_has(catalog: Catalog, column_type: PrimitiveType) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    filled_table(catalog, ID, NestedField(2, "part", column_type), DOCUMENT, spec=spec)
    value, text = VALUES[column_type]
    rows = [
        {"id": 1, "part": value, "doc": f'{{"id":1,"part":{text}}}'},
        {"id": 2, "part": None, "doc": '{"id":2}'},
    ]
    commit_all_or_raise(catalog, [without("part", staged(catalog, *rows))])
    parts = KeyPart(1, "/id"), KeyPart(2, "/part")
    keys = [f"[1,{text}]", "[1,null]", f"[2,{text}]", "[2,null]"]
    assert find(catalog, parts, [LongType(), column_type], *keys) == [keys[0], keys[3]]


def test_a_transformed_partition_does_not_say_what_a_column_has(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "bucket"))
    filled_table(catalog, ID, NestedField(2, "part", LongType()), DOCUMENT, spec=spec)
    commit_all_or_raise(catalog, [without("part", staged(catalog, {"id": 1, "part": 7, "doc": "{}"}))])
    keys = [f"[{number}]" for number in range(8)]
    assert find(catalog, [KeyPart(2, "/part")], [LongType()], *keys, "[null]") == ["[null]"]


def test_a_key_is_found_that_only_the_default_of_its_column_has(catalog: Catalog) -> None:
    filled_table(catalog, ID, DOCUMENT, rows=[[{"id": 1, "doc": '{"id":1}'}]])
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("part", LongType())
    set_default(catalog, "part", 7)
    parts = KeyPart(1, "/id"), KeyPart(3, "/part")
    assert find(catalog, parts, [LongType(), LongType()], "[1,7]", "[1,null]") == ["[1,7]"]


def test_the_partition_and_not_the_default_of_its_column_says_a_key(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    filled_table(catalog, ID, NestedField(2, "part", LongType()), DOCUMENT, spec=spec)
    rows = [{"id": 1, "part": 5, "doc": '{"id":1,"part":5}'}, {"id": 2, "part": None, "doc": '{"id":2}'}]
    commit_all_or_raise(catalog, [without("part", staged(catalog, *rows))])
    set_default(catalog, "part", 7)
    parts = KeyPart(1, "/id"), KeyPart(2, "/part")
    assert find(catalog, parts, [LongType(), LongType()], "[1,5]", "[1,7]", "[2,7]", "[2,null]") == [
        "[1,5]",
        "[2,null]",
    ]


def set_default(catalog: Catalog, column: str, value: Any) -> None:
    """Change the metadata file: PyIceberg does not write version 3."""
    upgrade_to_version_3(catalog, PATH)
    file = place_of(catalog.load_table(PATH).metadata_location)
    metadata = json.loads(file.read_text())
    for field in (field for schema in metadata["schemas"] for field in schema["fields"] if field["name"] == column):
        field["initial-default"] = value
    file.write_text(json.dumps(metadata))


def test_a_row_whose_key_only_its_partition_has_is_replaced(catalog: Catalog) -> None:
    make_table(catalog, BY_ID)
    land(catalog, {2: "a"})
    commit_all_or_raise(catalog, [without("id", staged(catalog, row(1, "a"), writer=OTHER))])
    land(catalog, {1: "b"})
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_a_row_that_another_engine_has_moved_to_a_file_without_its_key_is_replaced(catalog: Catalog) -> None:
    make_table(catalog, BY_ID)
    land(catalog, {1: "a", 2: "a"})
    waiting = stage_updates(catalog, {1: "b"})
    catalog.load_table(PATH).delete(EQUAL("id", 1))
    commit_all_or_raise(catalog, [without("id", staged(catalog, row(1, "a"), writer=OTHER))])
    commit_all_or_raise(catalog, [waiting])
    assert values_of(catalog) == {1: "b", 2: "a"}
