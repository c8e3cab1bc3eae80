"""The name of a file proves where it is from, and the values in names are ordered."""

import uuid

import pytest

from connector.iceberg.commits import fence
from connector.iceberg.commits.fence import file_prefix
from connector.iceberg.commits.file_names import FileOrigin
from connector.model.state import WriterId

WRITER = WriterId("acme/orders", "orders.v1", "00000000-7fffffff")
TABLE = str(uuid.uuid4())
VALUE = fence.new_value()
FORMS = [
    "{}.parquet",
    "{}-deletes.parquet",
    "{}-located.parquet",
    "{}.jsonl",
    "{}.run",
    "{}-m0.avro",
    "{}-files.json",
    "snap-123-{}.avro",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [fence.NONE, VALUE, f"closed:{VALUE}", fence.reset_value(VALUE), fence.reset_value(fence.NONE)],
    ids=["none", "open", "closed", "reset", "reset-none"],
)
def test_a_name_says_which_transaction_a_file_is_from(form: str, value: str) -> None:
    name = form.format(f"{file_prefix(WRITER, TABLE, value)}-{uuid.uuid4()}")
    assert FileOrigin.of(name) == FileOrigin(fence.writer_hash(WRITER), WRITER.key_range, TABLE, value)


@pytest.mark.parametrize("value", ["zz", "../../elsewhere", "closed:"])
def test_a_property_that_was_changed_by_hand_is_in_no_name(value: str) -> None:
    assert file_prefix(WRITER, TABLE, value) == file_prefix(WRITER, TABLE, fence.NONE)


@pytest.mark.parametrize("prev", [VALUE, f"closed:{VALUE}", fence.reset_value(VALUE)], ids=["open", "closed", "reset"])
def test_a_value_comes_after_the_one_that_it_was_staged_on(prev: str) -> None:
    assert [fence.read_ordinal(value) for value in (fence.NONE, prev, fence.new_value(prev))] == [0, 1, 2]
