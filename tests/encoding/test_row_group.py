"""What is gathered for a row group comes out as it went in."""

import pyarrow as pa
import pytest

from connector.encoding.parquet.data_files import RowGroupMemory

NUMBERS = pa.record_batch({"number": pa.array(range(1000), pa.int64())})
COLUMNS = {
    "numbers": pa.array([1, None, 3, 4]),
    "texts": pa.array(["a", "", None, "d" * 1000]),
    "lists of structs": pa.array([[{"x": 1}], [], None, [{"x": None}, {"x": 4}]]),
    "a dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "an extension type": pa.array([b"0" * 16, None, b"1" * 16, b"2" * 16], pa.uuid()),
    "nothing but nulls": pa.nulls(4),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_batches_come_back_as_they_were_whole_or_in_part(name: str) -> None:
    field = pa.field(name, COLUMNS[name].type, metadata={"PARQUET:field_id": "7"})
    batch = pa.record_batch([COLUMNS[name]], pa.schema([field]))
    added = [batch, batch.slice(1, 2), batch.slice(0, 0)]
    group = RowGroupMemory(1 << 20)

    assert all(map(group.add, added))

    taken = group.take()
    assert taken == added
    assert all(each.schema.equals(batch.schema, check_metadata=True) for each in taken)


def test_it_holds_what_there_is_room_for_and_as_much_again_once_it_is_taken() -> None:
    group = RowGroupMemory(3 * NUMBERS.nbytes)

    for _ in range(2):
        assert [group.add(NUMBERS) for _ in range(3)] == [True, True, False]  # each takes a little more than its values
        assert group.take() == [NUMBERS, NUMBERS]
    assert group.take() == []


def test_it_gathers_further_rows_after_its_memory_was_released() -> None:
    group = RowGroupMemory(3 * NUMBERS.nbytes)
    group.add(NUMBERS)
    taken = group.take()
    group.release()

    assert [group.add(NUMBERS.slice(500)) for _ in range(2)] == [True, True]
    assert taken == [NUMBERS]
    assert group.take() == [NUMBERS.slice(500)] * 2


def test_its_memory_is_not_released_while_it_has_rows() -> None:
    group = RowGroupMemory(3 * NUMBERS.nbytes)
    group.add(NUMBERS)

    with pytest.raises(AssertionError):
        group.release()


def test_what_is_gathered_is_a_copy() -> None:
    values = bytearray(8)
    group = RowGroupMemory(1 << 20)
    group.add(pa.record_batch([pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(values)])], ["number"]))
    values[:] = b"\xff" * 8

    assert group.take()[0].to_pylist() == [{"number": 0}]
