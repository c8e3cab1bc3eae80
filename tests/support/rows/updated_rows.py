"""Transactions with standard updates, staged as a session stages them: keys are looked up, rows are located."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.parquet.file_options import Destination
from connector.encoding.search import located_rows
from connector.encoding.search.located_rows import write_located
from connector.encoding.search.row_search import search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.fences.fence import file_prefix
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.table_properties import find_generation, restrict_to_generation
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import KeyPart, Updates
from connector.model.state import LocatedRowsFile, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from support.bindings import PATH
from support.rows.staged_rows import WRITER, staged
from support.tables.altered_tables import ID, filled_table

DOCUMENT: Final = NestedField(2, "doc", StringType())
PART: Final = NestedField(3, "part", StringType())
BY_PART: Final = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
ALL: Final = AlwaysTrue()
UPDATES: Final = Updates((KeyPart(1, "/id"),), document_id=2)


def make_table(catalog: Catalog, spec: PartitionSpec | None = None, **properties: str) -> None:
    """A table of documents. With a partition spec, it has the first letter of each value in a column of its own."""
    table = filled_table(catalog, ID, DOCUMENT, PART, spec=spec) if spec else filled_table(catalog, ID, DOCUMENT)
    if properties:
        with table.transaction() as transaction:
            transaction.set_properties({name.replace("_", "."): value for name, value in properties.items()})


def row(number: int, value: Any) -> dict[str, Any]:
    """A row; its part is left out of tables that do not have the column."""
    return {"id": number, "doc": json.dumps({"id": number, "value": value}), "part": str(value)[:1]}


def stage_updates(
    catalog: Catalog,
    values: dict[int, Any],
    removed: Iterable[int] = (),
    after: Sequence[StagedCommit] = (),
    writer: WriterId = WRITER,
    updates: Updates = UPDATES,
    path: TableIdentifier = PATH,
) -> StagedCommit:
    """A transaction that stores these values and deletes the removed ids, after pending ones of the same writer."""
    loaded = catalog.load_table(path)
    generation = find_generation(loaded, writer.materialization)
    table = restrict_to_generation(loaded, generation)
    view = ViewFactory(ManifestCache()).make(table, after)
    texts = pa.array([f"[{number}]" for number in (*values, *removed)], pa.string())
    keys = SearchedKeys(keys_of_texts(texts, updates.parts, [LongType()]), updates, ["id"])
    found = [
        {"file_path": file.path, "pos": int(position), "key": texts[int(key)].as_py()}
        for file in view.files
        for rows in search(table.io, file, keys, with_documents=False)
        for key, position in zip(rows.keys, rows.positions, strict=True)
    ]
    commit = staged(
        catalog, *(row(*each) for each in values.items()), after=after[-1] if after else None, writer=writer, path=path
    )
    commit = replace(commit, updates=updates)
    if not found:
        return replace(commit, located=LocatedRowsFile(None, 0, view.snapshot_id))
    prefix = file_prefix(writer, generation.uuid, commit.prev)
    location = Destination.of_table(table, prefix).new_location(located_rows.SUFFIX)
    write_located(table.io, location, [pa.Table.from_pylist(found)], updates)
    return replace(commit, located=LocatedRowsFile(location, len(found), view.snapshot_id))


def land(
    catalog: Catalog, values: dict[int, Any], removed: Iterable[int] = (), writer: WriterId = WRITER
) -> StagedCommit:
    """A transaction that stores these values and deletes the removed ids, from its files to its commit."""
    transaction = stage_updates(catalog, values, removed, writer=writer)
    commit_all_or_raise(catalog, [transaction])
    return transaction


def values_of(
    catalog: Catalog, path: TableIdentifier = PATH, condition: str | BooleanExpression = ALL
) -> dict[int, Any]:
    """The table's values by id, of the rows that meet a condition. Each id has one row, and its document is of the
    same id."""
    found = catalog.load_table(path).scan(condition).to_arrow().to_pylist()
    documents = {each["id"]: json.loads(each["doc"]) for each in found}
    assert len(documents) == len(found), "two rows for a key"
    assert all(document["id"] == number for number, document in documents.items())
    return {number: document["value"] for number, document in sorted(documents.items())}
