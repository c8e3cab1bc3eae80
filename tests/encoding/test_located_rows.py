"""Located rows: an object from which a later process, without a binding, finds the rows again."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import LongType, StringType

from connector.encoding.search.located_rows import read_located, write_located
from connector.host.errors import RetryableError, UnfitCommitError
from connector.model.binding import KeyPart, Updates
from support.snapshots import check_text

UPDATES = Updates((KeyPart(4, "/a~1b", default={"x": [1]}), KeyPart(1, "/n", is_exact=False)), 9, hard_delete=True)
ROWS = pa.table({"file_path": ["b", "a", "b"], "pos": [2**40, 0, 1], "key": ['["x",7]', '["y","07"]', '["x",7]']})
IO = PyArrowFileIO()


@pytest.mark.parametrize("path_type", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_and_the_way_to_find_them_are_read_back(tmp_path: Path, path_type: pa.DataType) -> None:
    rows = ROWS.set_column(0, "file_path", ROWS["file_path"].cast(path_type))
    write_located(IO, f"file://{tmp_path}/located", [rows], UPDATES)
    read = read_located(IO, f"file://{tmp_path}/located")

    assert read.rows.to_pylist() == ROWS.drop_columns(["key"]).to_pylist()
    assert read.read_texts().to_pylist() == ROWS["key"].to_pylist()
    assert read.updates == UPDATES


def test_rows_that_cannot_all_be_described_are_not_written(tmp_path: Path) -> None:
    """The object would be whole, but without some rows."""

    def describe() -> Iterator[pa.Table]:
        yield ROWS
        raise RetryableError("the disk with the keys is gone")

    written = list[str]()
    with pytest.raises(RetryableError, match="the disk with the keys is gone"):
        write_located(IO, f"file://{tmp_path}/located", describe(), UPDATES, lambda _, path, __: written.append(path))
    assert not written


def test_keys_are_only_decoded_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    read_table = pq.read_table

    def note(source: pa.BufferReader, columns: list[str], **options: Any) -> pa.Table:
        decoded.extend(columns)
        return read_table(source, columns=columns, **options)

    monkeypatch.setattr(pq, "read_table", note)
    write_located(IO, f"file://{tmp_path}/located", (ROWS.slice(place, 1) for place in range(3)), UPDATES)
    located = read_located(IO, f"file://{tmp_path}/located")
    assert decoded == ["file_path", "pos"]
    (tmp_path / "located").unlink()
    assert located.read_texts().to_pylist() == ROWS["key"].to_pylist()


def test_each_key_occurs_once_in_the_keys_table_with_the_types_of_today(tmp_path: Path) -> None:
    write_located(IO, f"file://{tmp_path}/located", [ROWS], UPDATES)
    located = read_located(IO, f"file://{tmp_path}/located")

    of_longs = located.keys({1: LongType(), 4: StringType(), 9: StringType()})
    of_strings = located.keys({1: StringType(), 4: StringType()})
    assert of_longs.to_pylist() == [{"4": "x", "1": 7, "key": '["x",7]'}, {"4": "y", "1": 7, "key": '["y","07"]'}]
    assert of_strings["1"].to_pylist() == ["7", "07"]


def test_a_dropped_key_column_is_a_key_error(tmp_path: Path) -> None:
    write_located(IO, f"file://{tmp_path}/located", [ROWS], UPDATES)

    with pytest.raises(KeyError, match="1"):
        read_located(IO, f"file://{tmp_path}/located").keys({4: StringType()})


def test_a_small_object_that_this_process_has_written_is_not_read_again(tmp_path: Path) -> None:
    small, large = f"file://{tmp_path}/small", f"file://{tmp_path}/large"
    write_located(IO, small, [ROWS], UPDATES)
    keys = [json.dumps([secrets.token_hex(), number]) for number in range(2000)]
    many = pa.table({"file_path": ["a"] * len(keys), "pos": range(len(keys)), "key": keys})
    write_located(IO, large, [many], UPDATES)
    for path in tmp_path.iterdir():
        path.unlink()
    assert read_located(IO, small).rows.num_rows == 3
    assert read_located(IO, small).read_texts().to_pylist() == ROWS["key"].to_pylist()
    with pytest.raises(RetryableError, match=r"large.*No such file"):
        read_located(IO, large)


@pytest.mark.parametrize("damage", ["cut off", "another file"])
def test_a_damaged_object_is_an_error_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "located"
    if damage == "cut off":
        write_located(IO, f"file://{tmp_path}/whole", [ROWS], UPDATES)
        path.write_bytes((tmp_path / "whole").read_bytes()[:-100])
    else:
        pq.write_table(ROWS, path)

    with pytest.raises(UnfitCommitError, match="this object of located rows was changed or is damaged") as error:
        read_located(IO, f"file://{path}")
    if damage == "another file":
        check_text("value_errors", "located rows without their updates", str(error.value), {f"file://{tmp_path}": "…"})
