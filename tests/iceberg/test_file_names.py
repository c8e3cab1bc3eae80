"""The name of a file proves where it is from, and the values in names are ordered."""

import uuid
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import file_prefix
from connector.iceberg.fences.file_names import FileOrigin, find_file_prefix
from connector.iceberg.fences.passed_values import reset_value
from connector.model.state import WriterId
from connector.model.table_identifier import Owner
from support.tables.altered_tables import ID, filled_table

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
    [fence.NONE, VALUE, f"closed:{VALUE}", reset_value(VALUE), reset_value(fence.NONE)],
    ids=["none", "open", "closed", "reset", "reset-none"],
)
def test_a_name_says_which_transaction_a_file_is_from(form: str, value: str) -> None:
    name = form.format(f"{file_prefix(WRITER, TABLE, value)}-{uuid.uuid4()}")
    assert FileOrigin.of(name) == FileOrigin(fence.writer_hash(WRITER), WRITER.key_range, TABLE, value)


@pytest.mark.parametrize("value", ["zz", "../../elsewhere", "closed:"])
def test_a_property_that_was_changed_by_hand_is_in_no_name(value: str) -> None:
    assert file_prefix(WRITER, TABLE, value) == file_prefix(WRITER, TABLE, fence.NONE)


def test_files_of_an_apply_are_named_after_a_writer_of_the_owner_that_is_not_closed(catalog: Catalog) -> None:
    """After its next commit, a session of this writer can tell whether the files are orphans."""
    left, right = WRITER, replace(WRITER, key_range="80000000-ffffffff")
    stranger = replace(WRITER, materialization="acme/other", key_range="00000000-00000000")
    table = filled_table(catalog, ID)

    def prefix(**values: str) -> str:
        writers = {"left": left, "right": right, "stranger": stranger}
        with table.transaction() as transaction:
            transaction.set_properties({fence.property_name(writers[name]): values[name] for name in values})
        return find_file_prefix(table, Owner(WRITER.materialization, WRITER.state_key))

    uuid_of_table = str(table.metadata.table_uuid)
    whole = replace(WRITER, key_range="00000000-ffffffff")
    assert prefix(stranger=VALUE) == file_prefix(whole, uuid_of_table, fence.NONE)
    assert prefix(left=f"closed:{VALUE}", right=VALUE) == file_prefix(right, uuid_of_table, VALUE)
    assert prefix(left=VALUE) == file_prefix(left, uuid_of_table, VALUE)


def test_files_in_a_table_of_another_program_are_named_after_any_writer(catalog: Catalog) -> None:
    """A property that was changed by hand never becomes part of a path."""
    table = filled_table(catalog, ID)
    prefixes = []
    for name in (f"{fence.PREFIX}../../elsewhere", fence.property_name(WRITER)):
        with table.transaction() as transaction:
            transaction.set_properties({name: VALUE})
        prefixes.append(find_file_prefix(table, None))
    uuid_of_table = str(table.metadata.table_uuid)
    assert prefixes == [
        file_prefix(
            replace(WRITER, materialization="", state_key="", key_range="00000000-ffffffff"), uuid_of_table, ""
        ),
        file_prefix(WRITER, uuid_of_table, VALUE),
    ]


@pytest.mark.parametrize("prev", [VALUE, f"closed:{VALUE}", reset_value(VALUE)], ids=["open", "closed", "reset"])
def test_a_value_comes_after_the_one_that_it_was_staged_on(prev: str) -> None:
    assert [fence.read_ordinal(value) for value in (fence.NONE, prev, fence.new_value(prev))] == [0, 1, 2]
