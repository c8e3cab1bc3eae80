"""The search for the rows of keys: what it finds, what it reads for it, and files that it refuses."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import S3_ENDPOINT, S3_REGION
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.live_rows.source_rows import RowLineage
from connector.encoding.parquet import data_pages, file_columns
from connector.encoding.search import row_search, searched_keys
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import Bounds, SearchedKeys
from connector.encoding.values.column_types import arrow_type_of
from connector.host.errors import RetryableError, UnreadableFileError, UserError
from connector.storage.file_io import open_file_io
from encoding.searched_tables import IO, SearchedTable
from support.snapshots import check_text


def whole(path: str) -> SearchedFile:
    return SearchedFile(path, Path(path[7:]).stat().st_size)


# Values of each type; several of them are the same in the column.
VALUES = {
    LongType(): ["7", '"07"', "7.0", '"7"', "8", '"-1"', "9223372036854775807", "null"],
    IntegerType(): ["7", '"07"', "-8", "null"],
    StringType(): ['"7"', "7", '"a"', '""', '"\\u00e9"', '"é"', "true", '"true"', "null", f'"{"x" * 5000}"'],
    DoubleType(): ["7", "7.0", '"7"', '"NaN"', '"Infinity"', "-0.0", "0", "9007199254740993", "9007199254740992"],
    BooleanType(): ["true", "false", "null"],
    DateType(): ['"2020-01-01"', '"+12020-01-01"', '"+13020-01-01"', '"0001-01-01"', "null"],
    TimestamptzType(): [
        '"2020-01-01T00:00:00Z"',
        '"2020-01-01T01:00:00+01:00"',
        '"2020-01-01T00:00:00.0000001Z"',
        '"2020-01-01 00:00:00"',
    ],
    DecimalType(38, 2): ["1.10", '"1.1"', "1.1", "-7", "12345678901234567890"],
    BinaryType(): ['"YQ=="', '"/w=="', "null"],
}
SHAPES = [[each] for each in VALUES] + [
    [LongType(), StringType()],
    [BooleanType(), TimestamptzType(), LongType()],
    [StringType(), DoubleType()],
]


@pytest.mark.parametrize("with_documents", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("types", SHAPES, ids=lambda types: "-".join(map(str, types)))
def test_a_search_finds_what_a_model_finds(
    tmp_path: Path, types: list[PrimitiveType], seed: int, with_documents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    if seed % 2:
        monkeypatch.setattr(data_pages, "_PAGE_SIZE", 1)  # then any rows are few
    elif seed:
        monkeypatch.setattr(file_columns, "_TEXTS", 200)  # then a row group is decoded in several parts
    if seed > 1:
        monkeypatch.setattr(row_search, "_KEY_COLUMNS", 1)  # then each row group is opened alone
    table = SearchedTable(tmp_path, types, is_exact=False)

    def some_keys(count: int) -> list[str]:
        return [f"[{','.join(random.choice(VALUES[each]) for each in types)}]" for _ in range(count)]

    rows = {}
    for _ in range(3):
        keys = some_keys(random.randrange(1, 60))
        rows[table.write(keys, row_group_size=random.randrange(1, 30))] = keys
    deleted = [
        (path, position) for path, keys in rows.items() for position in range(len(keys)) if not random.randrange(4)
    ]
    deleted = deleted or [(next(iter(rows)), 0)]
    half = len(deleted) // 2
    deletes = (table.delete(deleted[half:]),)
    files = []
    for path in rows:
        groups = pq.read_metadata(path[7:]).num_row_groups
        cut = random.randrange(groups + 1)
        pending = np.array([position for each, position in deleted[:half] if each == path], np.int64)
        for first, count in (0, cut), (cut, None):
            files.append(SearchedFile(path, 0, first, count, deletes, pending))
    wanted = list({json.dumps(json.loads(key)): key for key in some_keys(10)}.values())

    found = table.find(files, wanted, with_documents=with_documents)

    assert sorted(found, key=str) == sorted(table.expect(rows, deleted, wanted, with_documents=with_documents), key=str)
    assert [row[2] for row in found if row[1] == files[0].path] == sorted(
        row[2] for row in found if row[1] == files[0].path
    )


@pytest.mark.parametrize(("column_type", "key"), [(DoubleType(), '["NaN"]'), (LongType(), "[null]")])
def test_values_that_statistics_leave_out_are_found(tmp_path: Path, column_type: PrimitiveType, key: str) -> None:
    table = SearchedTable(tmp_path, [column_type])
    path = table.write(["[1]", key, "[2]"])

    assert [row[2] for row in table.find([whole(path)], [key])] == [1]


@pytest.mark.parametrize(
    ("column_type", "far"),
    [(DateType(), pa.array([0, 2_932_897], pa.int32())), (TimestamptzType(), pa.array([0, -(2**62)], pa.int64()))],
    ids=["date", "timestamp"],
)
def test_a_row_group_with_years_that_python_does_not_have_is_searched(
    tmp_path: Path, column_type: PrimitiveType, far: pa.Array
) -> None:
    """Another engine may have written the year 10000."""
    table = SearchedTable(tmp_path, [column_type])
    key = '["1970-01-01"]' if column_type == DateType() else '["1970-01-01T00:00:00Z"]'
    path = table.write([key, "[null]"], k0=far.cast(arrow_type_of(column_type)))

    assert [row[2] for row in table.find([whole(path)], [key])] == [0]


def test_many_random_keys_of_two_columns_are_found(tmp_path: Path) -> None:
    random = Random(1)
    table = SearchedTable(tmp_path, [LongType(), StringType()])
    keys = [json.dumps([random.randrange(50), str(random.randrange(20))]) for _ in range(1000)]
    path = table.write(keys, row_group_size=170)
    wanted = list({json.dumps([random.randrange(60), str(random.randrange(20))]) for _ in range(100)})

    assert sorted(table.find([whole(path)], wanted)) == sorted(table.expect({path: keys}, [], wanted))


def test_a_key_that_several_spellings_share_in_the_column_is_the_documents(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()], is_exact=False)
    path = table.write(["[7]", '["07"]', '["7"]'])

    assert [(row[0], row[2]) for row in table.find([whole(path)], ['["7"]', "[7.0]", '["007"]'])] == [
        ("[7.0]", 0),
        ('["7"]', 2),
    ]


def test_all_rows_of_a_key_are_found(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]", "[1]"], row_group_size=1)

    assert [row[2] for row in table.find([whole(path)], ["[1]"])] == [0, 2]


def test_deletes_of_other_files_do_not_count(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path, other = table.write(["[1]", "[2]"]), table.write(["[1]", "[2]"])
    deletes = table.delete([(other, 0), (path, 1), (path.replace("file://", "file:"), 0)])

    assert [row[2] for row in table.find([SearchedFile(path, 0, 0, None, (deletes,))], ["[1]", "[2]"])] == [0]


def test_a_file_whose_statistics_exclude_all_keys_is_not_opened(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType(), StringType()])
    path = table.write([f'[{number},"{number}"]' for number in range(10, 20)])
    table.find([whole(path)], ['[10,"10"]'])  # the footer is remembered from now on
    Path(path[7:]).unlink()

    file = SearchedFile(path, 0)
    assert table.find([file], ['[9,"15"]', '[20,"15"]', '[15,"0"]', '[null,"15"]']) == []
    with pytest.raises(RetryableError, match="No such file"):
        table.find([file], ['[15,"15"]'])


def test_documents_are_read_only_from_row_groups_with_a_key(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write([f"[{2 * number}]" for number in range(100)], row_group_size=50)
    column = pq.read_metadata(path[7:]).row_group(1).column(1)
    content = bytearray(Path(path[7:]).read_bytes())
    begin = column.dictionary_page_offset or column.data_page_offset
    content[begin : begin + column.total_compressed_size] = bytes(column.total_compressed_size)
    Path(path[7:]).write_bytes(content)

    assert [row[2] for row in table.find([whole(path)], ["[8]", "[101]"])] == [4]
    with pytest.raises(UnreadableFileError):
        table.find([whole(path)], ["[8]", "[100]"])


@pytest.mark.parametrize("seed", range(100))
def test_a_file_with_damaged_pages_is_searched_or_refused(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    keys = [f"[{number}]" for number in range(200)]
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(keys, row_group_size=50)
    content = bytearray(Path(path[7:]).read_bytes())
    pages = len(content) - 8 - pq.read_metadata(path[7:]).serialized_size
    for _ in range(random.choice([1, 10])):
        content[random.randrange(pages)] ^= random.randrange(1, 256)
    Path(path[7:]).write_bytes(content)

    with suppress(UserError, UnicodeDecodeError):  # the test decodes what is found; pages have no checksums
        table.find([whole(path)], keys)


@pytest.mark.parametrize("end", [0, 8, 300], ids="{} bytes".format)
def test_a_truncated_file_is_refused(tmp_path: Path, end: int) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"])
    Path(path[7:]).write_bytes(Path(path[7:]).read_bytes()[:end])

    with pytest.raises(UnreadableFileError, match=f"{path} is damaged, or of a form"):
        table.find([whole(path)], ["[1]"])


@pytest.mark.parametrize("size", [100, 100 << 20], ids=["small", "large"])
def test_an_object_whose_path_pyarrow_refuses_is_named(tmp_path: Path, size: int) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    file = SearchedFile("s3://lake/data//0.parquet", size)
    keys = SearchedKeys(table.keys(["[1]"]), table.updates, table.key_names)
    io = open_file_io({S3_ENDPOINT: "http://127.0.0.1:1", S3_REGION: "eu-west-1"})  # no request is sent
    with pytest.raises(UnreadableFileError, match="whose path has an empty part") as error:
        [*search(io, file, keys, with_documents=True)]
    assert error.value.path == file.path


def test_a_file_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write([f"[{number}]" for number in range(100)], k0=pa.array(range(100)))
    content = bytearray(Path(path[7:]).read_bytes())
    begin = pq.read_metadata(path[7:]).row_group(0).column(1).data_page_offset
    content[begin : begin + 4] = b"\xff" * 4
    Path(path[7:]).write_bytes(content)

    with pytest.raises(UnreadableFileError) as error:
        table.find([whole(path)], ["[1]"])
    check_text("value_errors", "a damaged data file", str(error.value), {f"file://{tmp_path}": "…"})


@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view()], ids=str)
def test_columns_are_found_by_their_ids_whatever_the_file_calls_and_types_them(
    tmp_path: Path, text: pa.DataType
) -> None:
    """Another engine may have written 32 bits before the column was widened, large strings, views or dictionaries."""
    table = SearchedTable(tmp_path, [LongType(), StringType(), StringType()])
    keys = ['[1,"a","x"]', '[2,"b","y"]']
    path = table.write(
        keys,
        other=pa.array(["[2]", "[1]"]),
        k0=pa.array([1, 2], pa.int32()),
        k1=pa.array(["a", "b"], text),
        k2=pa.array(["x", "y"]).dictionary_encode(),
        flow_document=pa.array(['{"a":1}', '{"b":2}'], text),
    )
    file = pq.read_table(path[7:])
    renamed = f"file://{tmp_path}/renamed.parquet"
    pq.write_table(
        pa.table(file.columns, schema=pa.schema([each.with_name("same") for each in file.schema])), renamed[7:]
    )

    beyond_32_bits = '[4294967297,"a","x"]'
    for each in (path, renamed):
        assert [(row[0], row[3]) for row in table.find([whole(each)], [*keys, beyond_32_bits])] == [
            (keys[0], '{"a":1}'),
            (keys[1], '{"b":2}'),
        ]


def test_binary_keys_and_long_documents_are_found_in_views(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [BinaryType()])
    documents = [f'{{"text":"{number * 1000}"}}' for number in range(3)]
    path = table.write(
        ['["YQ=="]', '["/w=="]', "[null]"],
        k0=pa.array([b"a", b"\xff", None], pa.binary_view()),
        flow_document=pa.array(documents, pa.string_view()),
    )
    found = table.find([whole(path)], ["[null]", '["YQ=="]'])
    assert [(row[0], row[3]) for row in found] == [('["YQ=="]', documents[0]), ("[null]", documents[2])]


def test_a_column_that_is_newer_than_the_file_is_null_there(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType(), StringType()])
    path = table.write(['[1,"a"]', "[2,null]"], k1=None)

    assert [row[0] for row in table.find([whole(path)], ['[1,"a"]', "[2,null]"])] == ["[2,null]"]


@pytest.mark.parametrize("with_documents", [True, False])
@pytest.mark.parametrize(
    "column", [None, pa.array([None, None, None], pa.int64())], ids=["an older file", "a file that was compacted since"]
)
def test_a_row_that_is_older_than_a_key_column_does_not_have_null_in_its_key(
    tmp_path: Path, column: pa.Array | None, *, with_documents: bool
) -> None:
    """Nor does a row whose values another engine has left out. The commit of the key null would delete it."""
    table = SearchedTable(tmp_path, [StringType(), LongType()])
    path = table.write(['["eu",1]', '["us",1]', "[null,1]"], k1=pa.array([1, 1, 1]), k0=column)
    assert [row[2] for row in table.find([whole(path)], ["[null,1]"], with_documents=with_documents)] == [2]


@pytest.mark.parametrize("is_exact", [True, False])
def test_keys_whose_hashes_are_equal_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    table = SearchedTable(tmp_path, [LongType(), StringType()], is_exact)
    keys = [f'[{number % 7},"{number}"]' for number in range(40)] + ['[null,"1"]', "[1,null]", "[null,null]"]
    path = table.write(keys, row_group_size=9)
    monkeypatch.setattr(searched_keys, "hash_keys", lambda columns: np.zeros(len(columns[0]), np.uint64))
    wanted = [*keys[::3], "[null,null]", '[5,"1"]', '[null,"2"]']
    assert sorted(table.find([whole(path)], wanted)) == sorted(table.expect({path: keys}, [], wanted))


@pytest.mark.parametrize("most", [0, 1 << 18])
def test_row_groups_without_any_of_many_keys_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Above a number of keys, only their extremes are compared."""
    monkeypatch.setattr(searched_keys, "_COMPARED", most)
    table = SearchedTable(tmp_path, [LongType(), StringType()])
    keys = SearchedKeys(table.keys(['[10,"a"]', '[20,"b"]', '[30,"c"]']), table.updates, table.key_names)

    def allows(*extremes: list[Any]) -> bool:
        types = (pa.int64(), pa.string())
        bounds = [Bounds(pa.array(some, kind), False) for some, kind in zip(extremes, types, strict=True)]
        return keys.may_be_within(bounds)

    assert allows([20, 20], ["a", "z"])
    assert not allows([31, 40], ["a", "z"])
    assert not allows([1, 40], ["d", "z"])
    assert not allows([1, 9], ["a", "z"])
    assert allows([11, 19], ["a", "z"]) == (most == 0)


def test_zeros_of_both_signs_are_equal_and_so_are_nans(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [DoubleType()])
    path = table.write(["[0]", "[1]", "[2]"], k0=pa.array([-0.0, 0.0, -math.nan]))
    keys = SearchedKeys(pa.table({"10": [0.0, math.nan], "key": ["[0]", "[1]"]}), table.updates, table.key_names)
    [found] = search(IO, whole(path), keys, with_documents=True)
    assert list(zip(found.keys.tolist(), found.positions.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 2)]


def test_a_few_documents_of_many_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write([f"[{n}]" for n in range(9_000)], row_group_size=4_000)
    monkeypatch.setattr(data_pages, "_PAGE_SIZE", 1 << 10)
    decoded: list[str] = []
    iter_batches = pq.ParquetFile.iter_batches

    def note(file: pq.ParquetFile, *arguments: Any, columns: list[str], **options: Any) -> Any:
        decoded.extend(columns)
        return iter_batches(file, *arguments, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", note)
    found = table.find([whole(path)], ["[3]", "[3999]", "[8999]", "[9000]"])
    assert set(decoded) == {"k0"}
    assert [(key, position) for key, _, position, _ in found] == [("[3]", 3), ("[3999]", 3_999), ("[8999]", 8_999)]
    assert [json.loads(document or "")["number"] for *_, document in found] == [3, 3_999, 8_999]


def test_arrow_reads_the_documents_after_a_page_that_only_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_pages = data_pages._read

    def stop_early(*arguments: Any) -> Iterator[bytes]:
        yield from islice(read_pages(*arguments), 2)
        raise data_pages._UnknownPageError

    monkeypatch.setattr(data_pages, "_PAGE_SIZE", 1)  # then any rows are few
    monkeypatch.setattr(data_pages, "_read", stop_early)
    monkeypatch.setattr(file_columns, "_TEXTS", 1)
    table = SearchedTable(tmp_path, [LongType()])
    found = table.find([whole(table.write([f"[{n}]" for n in range(20)]))], [f"[{n}]" for n in range(0, 20, 3)])
    assert [json.loads(document or "")["number"] for *_, document in found] == [*range(0, 20, 3)]


def test_a_few_large_documents_are_read_one_after_the_other(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    keys = [f"[{number}]" for number in range(20)]
    documents = pa.array([json.dumps({"0": number, "text": "x" * (2 << 20)}) for number in range(20)])
    path = table.write(keys, flow_document=documents)

    parts = [
        *search(
            IO, whole(path), SearchedKeys(table.keys(keys[::3]), table.updates, table.key_names), with_documents=True
        )
    ]
    assert [found.documents.to_pylist() for found in parts if found.documents] == [
        [documents[n].as_py()] for n in range(0, 20, 3)
    ]


def test_many_documents_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    keys = [f"[{number}]" for number in range(40)]
    documents = pa.array([json.dumps({"0": number, "text": "x" * (1 << 20)}) for number in range(40)])
    path = table.write(keys, flow_document=documents)

    found = table.find([whole(path)], keys[::3])
    assert [row[3] for row in found] == documents.to_pylist()[::3]


@pytest.mark.parametrize(
    "document", [None, "[1]", '{"0":', '{"0":3,"a":"\\ud800"', "", '{"0":3}{}', '{"0":3,"a":"\n"}']
)
@pytest.mark.parametrize("is_exact", [False, True], ids=["by the document", "by the column"])
def test_a_document_that_is_no_object_is_an_error_that_names_its_row(
    tmp_path: Path, document: str | None, is_exact: bool
) -> None:
    table = SearchedTable(tmp_path, [LongType()], is_exact)
    path = table.write(["[1]", "[2]", "[3]"], row_group_size=2, flow_document=pa.array(["x", "y", document]))

    with pytest.raises(UserError, match="row 2 has no JSON object") as error:
        table.find([whole(path)], ["[3]"], with_documents=is_exact)
    check_text("value_errors", "a row without a document", str(error.value), {f"file://{tmp_path}": "…"})


@pytest.mark.parametrize("is_exact", [False, True], ids=["by the document", "by the column"])
def test_any_json_object_with_the_key_is_a_document(tmp_path: Path, is_exact: bool) -> None:
    table = SearchedTable(tmp_path, [LongType()], is_exact)
    deep = "[" * 5000 + "]" * 5000
    documents = ['{"0":0,"a":"\\ud800"}', f'{{"0":1,"a":{deep}}}', '\n{\n "0": 2\n}\n']
    path = table.write(["[0]", "[1]", "[2]"], flow_document=pa.array(documents))
    assert [row[3] for row in table.find([whole(path)], ["[0]", "[1]", "[2]"])] == documents


def test_a_file_without_documents_is_refused_where_they_are_wanted(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"], flow_document=None)

    assert [row[2] for row in table.find([whole(path)], ["[2]"], with_documents=False)] == [1]
    with pytest.raises(UserError, match="row 1 has no JSON object"):
        table.find([whole(path)], ["[2]"])


def test_a_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k0": [1]}), tmp_path / "0.parquet")

    with pytest.raises(UserError, match="without Iceberg's field ids"):
        SearchedTable(tmp_path, [LongType()]).find([whole(f"file://{tmp_path}/0.parquet")], ["[1]"])


def test_a_key_that_its_column_cannot_hold_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [TimestamptzType()])
    key = '["1970-01-01T00:00:00Z"]'
    path = table.write([key], k0=pa.array([1], pa.timestamp("ns", "UTC")))

    with pytest.raises(UserError, match=f"{path} has values that the column k0 cannot hold"):
        table.find([whole(path)], [key])


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match=r"gone\.parquet"):
        SearchedTable(tmp_path, [LongType()]).find([SearchedFile(f"file://{tmp_path}/gone.parquet", 0)], ["[1]"])


@pytest.mark.parametrize(("keeps_ids", "expected"), [(True, [7, 8]), (False, None)])
def test_row_ids_are_told_from_a_column_with_their_name(
    tmp_path: Path, *, keeps_ids: bool, expected: list[int] | None
) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"], _row_id=pa.array([7, 8]))
    other = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "1000"})
    pq.write_table(pq.read_table(path[7:]).add_column(0, other, pa.array([70, 80])), path[7:])
    keys = SearchedKeys(table.keys(["[1]", "[2]"]), table.updates, table.key_names)
    [found] = search(IO, SearchedFile(path, 0, keeps_ids=keeps_ids), keys, with_documents=True)
    assert (None if found.row_ids is None else found.row_ids.tolist()) == expected


@pytest.mark.parametrize("module", [row_search, searched_keys])
def test_a_row_after_many_others_has_its_own_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """Key columns are decoded and compared a part after the other."""
    monkeypatch.setattr(module, {row_search: "_ROWS", searched_keys: "_AT_ONCE"}[module], 2)
    table, keys = SearchedTable(tmp_path, [LongType()]), [f"[{number}]" for number in range(7)]
    found = table.find([whole(table.write(keys))], ["[1]", "[5]", "[6]"])
    assert [(key, position) for key, _, position, _ in found] == [("[1]", 1), ("[5]", 5), ("[6]", 6)]


@pytest.mark.parametrize(("own", "expected"), [(None, [101, 102]), ([7, None, 9], [101, 9])])
def test_rows_of_each_row_group_have_their_ids(
    tmp_path: Path, own: list[int | None] | None, expected: list[int]
) -> None:
    """A row without an id in the file has the one that follows from its position."""
    table = SearchedTable(tmp_path, [LongType()])
    columns = {} if own is None else {"_row_id": pa.array(own, pa.int64())}
    path = table.write(["[1]", "[2]", "[3]"], row_group_size=1, **columns)
    keys = SearchedKeys(table.keys(["[2]", "[3]"]), table.updates, table.key_names)
    file = SearchedFile(path, 0, lineage=RowLineage(100, 1), keeps_ids=True)
    found = [rows.row_ids for rows in search(IO, file, keys, with_documents=True)]
    assert [number for ids in found if ids is not None for number in ids.tolist()] == expected


@pytest.mark.parametrize("is_exact", [True, False])
def test_keys_are_the_same_however_they_are_escaped(tmp_path: Path, is_exact: bool) -> None:
    """A text with half of a surrogate pair is no value of a column, so such a key has no row. The row of a key with a
    text that looks like it is not taken for its own."""
    table = SearchedTable(tmp_path, [StringType()], is_exact)
    pair, half, looks_like_half, nul = r'["\ud83d\ude00"]', r'["\ud800"]', r'["\\ud800"]', r'["a\u0000"]'
    path = table.write([looks_like_half, '["\N{REPLACEMENT CHARACTER}"]', '["a"]', '["\U0001f600"]', nul])

    found = table.find([whole(path)], [pair, half, r'["a\ud800"]', looks_like_half, nul])

    assert {key: position for key, _, position, _ in found} == {looks_like_half: 0, pair: 3, nul: 4}
    assert len(found) == 3
