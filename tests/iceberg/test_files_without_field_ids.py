"""Files without field ids, as other programs add them to a table: its name mapping says which column is which."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.converted_files import rewrite_converted
from connector.encoding.search.key_bounds import KeyValues
from connector.encoding.search.last_changes import find_last_changes
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import StartBackfill
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.compaction_result import CompactionResult
from connector.iceberg.maintenance.rearrangement_plan import plan_rearrangement
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.table_properties import read_name_mapping
from connector.iceberg.perform_changes import evolve
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import KeyPart, Updates
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH
from support.engines.readers import duckdb_rows
from support.engines.spark_sql import SparkSql, spark_rows
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import PART, land, stage_updates, values_of
from support.snapshots import check_text
from support.tables import compacting
from support.tables.altered_tables import ID, filled_table, fit, rows, wanted
from support.tables.compacting import EAGER
from support.tables.eager_compaction import files
from support.tables.local_tables import alterer, table_of

MAPPING: Final = "schema.name-mapping.default"
OLD_NAME: Final = NestedField(2, "text", StringType())
SCALARS: Final = (ID, OLD_NAME, PART, NestedField(4, "weight", DoubleType()))
NESTED: Final = (
    NestedField(5, "pair", StructType(NestedField(6, "left", LongType()), NestedField(7, "right", StringType()))),
    NestedField(8, "tags", ListType(9, StringType(), element_required=False)),
    NestedField(10, "counts", MapType(11, StringType(), 12, LongType(), value_required=False)),
)

BACKFILLED: Final = replace(WRITER, state_key="shop%2Forders.v1")

compact_rearranged = partial(compacting.compact, plan=plan_rearrangement)


def document(number: int, value: str) -> str:
    return json.dumps({"id": number, "value": value})


def add_file(catalog: Catalog, directory: Path, name: str, columns: Mapping[str, Any]) -> str:
    """Add a file with these columns, in this order, as another program has written it."""
    types: dict[str, Any] = {
        "id": pa.int64(),
        "weight": pa.float64(),
        "pair": pa.struct({"left": pa.int64(), "right": pa.string()}),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int64()),
    }
    fields = [pa.field(each, types.get(each, pa.string()), nullable=each != "id") for each in columns]
    path = directory / f"{name}.parquet"
    pq.write_table(pa.table(dict(columns), schema=pa.schema(fields)), path)
    table_of(catalog).add_files([f"file://{path}"])
    return f"file://{path}"


def fill(catalog: Catalog, directory: Path, *nested: NestedField) -> None:
    """A table whose files have their columns in another order, lack some, or have an old name of one."""
    with filled_table(catalog, *SCALARS, *nested).transaction() as transaction:
        transaction.set_properties(EAGER)
    many: dict[str, list[Any]] = {
        "pair": [{"left": 1, "right": "r"}, None],
        "tags": [["x", None], []],
        "counts": [[("k", 1)], None],
    }
    values = {each.name: many[each.name] for each in nested}
    texts = [document(1, "a"), document(2, "b")]
    add_file(
        catalog, directory, "usual", {"id": [1, 2], "text": texts, "part": ["a", "b"], "weight": [0.5, None]} | values
    )
    texts = [document(3, "b"), document(4, "c")]
    add_file(
        catalog, directory, "reversed", values | {"weight": [1.5, 2.5], "part": ["b", "c"], "text": texts, "id": [3, 4]}
    )
    add_file(catalog, directory, "lacking", {"text": [document(5, "a")], "id": [5]})
    with table_of(catalog).update_schema() as update:
        update.rename_column("text", "doc")
    one = {name: of_rows[:1] for name, of_rows in values.items()}
    add_file(catalog, directory, "renamed", {"doc": [document(6, "c")], "id": [6], "part": ["c"]} | one)


def ids_of_fields(path: str) -> list[int]:
    """The field ids of all columns of a file, in their order."""
    found = pq.read_schema(path.removeprefix("file://"))
    return [int((field.metadata or {}).get(b"PARQUET:field_id", -1)) for field in found]


def names_and_ids(catalog: Catalog) -> dict[str, int]:
    return {column.name: column.field_id for column in table_of(catalog).schema().fields}


def sort_by_part(catalog: Catalog) -> None:
    with table_of(catalog).update_sort_order() as update:
        update.desc("part", IdentityTransform())


def partition_by_part(catalog: Catalog) -> None:
    with table_of(catalog).update_spec() as update:
        update.add_field("part", IdentityTransform(), "part")


def do_nothing(_: Catalog) -> None:
    pass


@pytest.mark.parametrize(
    ("arrange", "compact"),
    [
        (do_nothing, compacting.compact),
        (sort_by_part, compacting.compact),
        (sort_by_part, compact_rearranged),
        (partition_by_part, compact_rearranged),
    ],
    ids=["compacted", "sorted", "rearranged by sort order", "rearranged by partition"],
)
@pytest.mark.parametrize("nested", [(), NESTED], ids=["scalars", "nested"])
def test_compacted_files_have_the_same_rows_and_field_ids(
    catalog: Catalog,
    tmp_path: Path,
    duckdb_reader: duckdb.DuckDBPyConnection,
    nested: tuple[NestedField, ...],
    arrange: Callable[[Catalog], None],
    compact: Callable[[Catalog, Any], CompactionResult],
) -> None:
    fill(catalog, tmp_path, *nested)
    before, before_by_duckdb = rows(catalog), duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id")
    arrange(catalog)
    result = compact(catalog, PATH)
    assert (result.files_before, result.failed) == (4, 0)
    assert all(-1 not in ids_of_fields(file) for file in files(catalog))
    assert [each["doc"] for each in before] == [document(number, value) for number, value in enumerate("abbcac", 1)]
    assert rows(catalog) == before
    assert duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id") == before_by_duckdb
    with table_of(catalog).transaction() as transaction:
        transaction.remove_properties(MAPPING)
    assert rows(catalog) == before, "nested fields have ids, too"


@pytest.mark.spark
def test_java_reads_the_same_rows_before_and_after(catalog: Catalog, tmp_path: Path, spark_reader: SparkSql) -> None:
    fill(catalog, tmp_path, *NESTED)
    query = (
        "SELECT id, doc, part, weight, to_json(struct(pair, tags, counts)) AS nested FROM local.shop.orders ORDER BY id"
    )
    [before] = spark_rows(spark_reader, tmp_path, query)
    assert compacting.compact(catalog, PATH).files_before == 4
    [after] = spark_rows(spark_reader, tmp_path, query)
    assert [each["id"] for each in before] == [1, 2, 3, 4, 5, 6]
    assert after == before


def test_a_file_without_field_ids_in_a_table_without_a_mapping_is_left(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    with table_of(catalog).transaction() as transaction:
        transaction.remove_properties(MAPPING)
    before = files(catalog)
    result = compacting.compact(catalog, PATH)
    assert result.errors
    assert all("has columns without Iceberg's field ids" in each for each in result.errors)
    assert files(catalog) == before
    with pytest.raises(UserError, match="has columns without Iceberg's field ids"):
        stage_updates(catalog, {3: "new"})


def test_a_field_within_a_column_that_is_not_mapped_is_not_lost(catalog: Catalog, tmp_path: Path) -> None:
    """It would have no id in the new file either."""
    fill(catalog, tmp_path, *NESTED)
    mapping = json.loads(table_of(catalog).properties[MAPPING])
    [pair] = [each for each in mapping if "pair" in each["names"]]
    pair["fields"] = [each for each in pair["fields"] if "right" not in each["names"]]
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({MAPPING: json.dumps(mapping)})
    before = files(catalog)
    result = compacting.compact(catalog, PATH)
    assert result.errors
    assert all("has columns without Iceberg's field ids" in each for each in result.errors)
    assert {file for file in before if "lacking" not in file} <= {*files(catalog)}
    located = stage_updates(catalog, {3: "new"}).located
    assert located
    assert located.rows == 1, "keys do not need the field"


def test_files_are_not_committed_when_the_mapping_has_changed_meanwhile(catalog: Catalog, tmp_path: Path) -> None:
    """They have the values of the columns that the old mapping named."""
    fill(catalog, tmp_path)

    def exchange_names() -> None:
        mapping = json.loads(table_of(catalog).properties[MAPPING])
        names = {each["field-id"]: each["names"] for each in mapping}
        exchanged = [{"field-id": 5 - each if each in (2, 3) else each, "names": names[each]} for each in names]
        with table_of(catalog).transaction() as transaction:
            transaction.set_properties({MAPPING: json.dumps(exchanged)})

    result = compacting.compact(catalog, PATH, exchange_names)
    assert (result.commits, len(files(catalog))) == (0, 4)
    assert [each["part"] for each in rows(catalog)] == [document(n, value) for n, value in enumerate("abbcac", 1)]


def test_rows_of_such_files_are_updated_and_deleted(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    land(catalog, {1: "new", 4: "new", 5: "new", 7: "new"}, removed=[6])
    expected = {1: "new", 2: "b", 3: "b", 4: "new", 5: "new", 7: "new"}
    assert values_of(catalog) == expected
    compacting.compact(catalog, PATH)
    assert values_of(catalog) == expected


def test_a_load_of_keys_finds_the_files_and_the_documents(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    keys = KeyValues({1: LongType()}, pa.table({"1": pa.array([4, 6], pa.int64())}))
    view = ViewFactory(ManifestCache()).make(table_of(catalog), (), keys=keys)
    assert [Path(file.path).stem for file in view.files] == ["reversed", "renamed"]


def test_rows_that_come_in_such_files_meanwhile_are_found_by_their_keys(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    staged = stage_updates(catalog, {8: "new"})
    add_file(catalog, tmp_path, "later", {"doc": [document(8, "old")], "id": [8]})
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog)[8] == "new"


def test_the_newest_of_several_rows_of_a_key_is_found(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    add_file(catalog, tmp_path, "again", {"doc": [document(6, "again")], "id": [6]})
    table, none = table_of(catalog), np.zeros(2, np.int64)
    view = ViewFactory(ManifestCache()).make(table, ())
    found = RowsOfKeys(np.array([3, 4]), none, none, None)
    assert find_last_changes(table.io, view.files, found).tolist() == [4, 5]


def test_a_column_of_such_a_file_is_converted(catalog: Catalog, tmp_path: Path) -> None:
    fill(catalog, tmp_path)
    table = table_of(catalog)
    [old] = [file for file in files(catalog) if file.endswith("reversed.parquet")]
    weight, new = table.schema().find_field(4), NestedField(20, "weight", StringType())
    columns = (TargetColumn.of(ID, ID), TargetColumn.of(new, weight))
    target = TargetFiles(columns, Destination.of_table(table, "converted"), mapping=read_name_mapping(table))
    converted = rewrite_converted(table.io, target, SourceFile(old, Path(old.removeprefix("file://")).stat().st_size))
    assert converted
    assert pq.read_table(converted[0].path.removeprefix("file://")).to_pydict() == {
        "id": [3, 4],
        "weight": ["1.5", "2.5"],
    }
    assert ids_of_fields(converted[0].path) == [1, 20]


def renamed(former: str, name: str) -> NewColumn:
    return replace(wanted(name, StringType()), field=f"the field of {former}", former=former)


EXCHANGE: Final = (
    {"city": "other", "country": "country"},
    {"other": "other", "country": "city"},
    {"other": "country", "city": "city"},
)


@pytest.mark.parametrize("publications", [1, 2, 3])
def test_columns_that_exchange_their_names_keep_their_values(
    catalog: Catalog, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection, publications: int
) -> None:
    filled_table(catalog, ID, NestedField(2, "city", StringType()), NestedField(3, "country", StringType()))
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(EAGER)
    add_file(catalog, tmp_path, "both", {"id": [1], "city": ["Paris"], "country": ["France"]})
    add_file(catalog, tmp_path, "cities", {"id": [2], "city": ["Rome"]})
    add_file(catalog, tmp_path, "countries", {"country": ["Norway"], "id": [3]})
    add_file(catalog, tmp_path, "reversed", {"country": ["Peru"], "city": ["Lima"], "id": [4]})
    for names in EXCHANGE[:publications]:
        fit(catalog, wanted("id", LongType()), *(renamed(*each) for each in names.items()))
    first, second = EXCHANGE[publications - 1].values()
    expected = [
        {"id": 1, first: "Paris", second: "France"},
        {"id": 2, first: "Rome", second: None},
        {"id": 3, first: None, second: "Norway"},
        {"id": 4, first: "Lima", second: "Peru"},
    ]
    assert rows(catalog) == expected
    assert duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id") == expected
    result = compacting.compact(catalog, PATH)
    assert (result.files_before, result.errors) == (4, ())
    assert rows(catalog) == expected
    assert duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id") == expected


def test_a_column_does_not_get_the_values_of_a_converted_one_with_its_name(
    catalog: Catalog, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """The files have no value in the converted column, so they are not written again."""
    filled_table(catalog, ID, NestedField(2, "text", StringType()), NestedField(3, "part", StringType()))
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(EAGER)
    add_file(catalog, tmp_path, "empty", {"id": [1], "text": [None], "part": ["a"]})
    for number, part in enumerate("bcd", 2):
        add_file(catalog, tmp_path, f"lacking {number}", {"part": [part], "id": [number]})
    fit(catalog, wanted("id", LongType()), wanted("text", LongType()), wanted("part", StringType()))
    converted = replace(wanted("number", LongType()), former="text")
    fit(catalog, wanted("id", LongType()), converted, renamed("part", "text"))
    expected = [{"id": number, "number": None, "text": part} for number, part in enumerate("abcd", 1)]
    assert rows(catalog) == expected
    assert duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id") == expected
    assert all(ids_of_fields(file) == [-1] * len(ids_of_fields(file)) for file in files(catalog))
    result = compacting.compact(catalog, PATH)
    assert (result.files_before, result.errors) == (4, ())
    assert rows(catalog) == expected


@pytest.mark.parametrize("convert", [False, True], ids=["compacted", "another column is converted"])
def test_lists_of_files_that_polars_wrote_keep_their_values(
    catalog: Catalog, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection, convert: bool
) -> None:
    """Arrow has other types for them than for the lists of most files."""
    import polars

    tags = NestedField(2, "tags", ListType(4, StringType(), element_required=False))
    point = NestedField(3, "point", ListType(5, DoubleType(), element_required=False))
    filled_table(catalog, NestedField(1, "id", LongType()), tags, point, NestedField(6, "qty", LongType()))
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(EAGER)
    expected: list[dict[str, Any]] = [
        {"id": n, "tags": ["a", None][:n], "point": [0.5, float(n)] if n else None, "qty": n} for n in range(4)
    ]
    of_point = {"point": polars.Array(polars.Float64, 2), "tags": polars.List(polars.String)}
    for row in expected:
        path = tmp_path / f"{row['id']}.parquet"
        polars.DataFrame([row], schema_overrides=of_point).write_parquet(path)
        table_of(catalog).add_files([f"file://{path}"])
    types = pq.read_schema(path)
    assert (str(types.field("tags").type)[:10], str(types.field("point").type)[:10]) == ("large_list", "fixed_size")
    if convert:
        fit(catalog, wanted("id", LongType()), wanted("qty", StringType()))
        expected = [row | {"qty": str(row["qty"])} for row in expected]
    else:
        result = compacting.compact(catalog, PATH)
        assert (result.files_before, result.errors) == (4, ())
    assert all(-1 not in ids_of_fields(file) for file in files(catalog))
    assert rows(catalog) == expected
    assert duckdb_rows(duckdb_reader, table_of(catalog).metadata_location, "id") == expected


def test_a_file_whose_key_has_the_name_of_a_column_from_before_a_backfill_is_an_error(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Older snapshots have values by the name in the older column, so it does not go to the new one unasked."""
    filled_table(catalog, NestedField(1, "id", LongType()), OLD_NAME)
    add_file(catalog, tmp_path, "older", {"id": [1], "text": [document(1, "older")]})
    before = table_of(catalog).current_snapshot()
    assert before
    columns = wanted("id", LongType()), replace(wanted("doc", StringType()), former="text")
    target = Target(PATH, Owner(MATERIALIZATION, BACKFILLED.state_key), columns, {}, replaces=True)
    [change] = evolve(catalog, PATH, None, partial(plan_changes, target=target), alterer())
    assert isinstance(change, StartBackfill)
    updates = Updates((KeyPart(3, "/id"),), document_id=4)
    commit_all_or_raise(catalog, [stage_updates(catalog, {2: "first"}, writer=BACKFILLED, updates=updates)])
    assert names_and_ids(catalog) == {"id": 3, "doc": 4}
    assert rows(catalog, before.snapshot_id) == [{"id": 1, "text": document(1, "older")}]

    path = add_file(catalog, tmp_path, "later", {"id": [8], "doc": [document(8, "old")]})
    with pytest.raises(UserError) as error:
        stage_updates(catalog, {8: "new"}, writer=BACKFILLED, updates=updates)
    name = "the name mapping has the name of a key column for an older one"
    check_text("update_errors", name, str(error.value), {path: "<file>"})
    names = [{"field-id": number, "names": [name]} for name, number in names_and_ids(catalog).items()]
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({MAPPING: json.dumps(names)})
    commit_all_or_raise(catalog, [stage_updates(catalog, {8: "new"}, writer=BACKFILLED, updates=updates)])
    assert values_of(catalog) == {2: "first", 8: "new"}
