"""What each mode of schema evolution does to a table that exists, and what it refuses with which way out."""

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.config.values import SchemaEvolution
from connector.evolution.altered_schema import alter_schema, find_converted_columns, plan_schema
from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.existing_table import CatalogEntry, ExistingTable
from connector.evolution.field_config import MAX_NAME
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    TableChange,
    WidenColumn,
    describe_change,
)
from connector.evolution.target import NewColumn, Target
from connector.evolution.type_changes import TYPE_CHANGES, TypeChange, can_hold, find_type_change
from connector.evolution.type_mapping import COLUMN_TYPES
from connector.host.errors import UserError
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH

OWNER = Owner(MATERIALIZATION, "shop%2Forders.v0")
STRICT, ADD_COLUMNS, FULL = SchemaEvolution
LONG = LongType()
NEEDED = [*COLUMN_TYPES.values(), StringType(), DecimalType(9, 0), DecimalType(20, 2)]
EXISTING = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 0), DateType(), TimeType()),
    *(TimestampType(), TimestamptzType(), UUIDType(), FixedType(4), BinaryType(), StringType(), DecimalType(8, 2)),
)


def wanted(
    name: str, type_: PrimitiveType = LONG, *, field: str = "", former: str | None = None, required: bool = False
) -> NewColumn:
    field = field or name
    return NewColumn(field, name, type_, required, "", False, field if former is None else former)


def column(number: int, name: str, type_: IcebergType = LONG, *, required: bool = False) -> NestedField:
    return NestedField(number, name, type_, required=required)


def planned(
    columns: tuple[NestedField, ...],
    *fields: NewColumn,
    mode: SchemaEvolution = FULL,
    pinned: dict[int, str] | None = None,
    owner: Owner = OWNER,
) -> list[TableChange]:
    table = ExistingTable(Schema(*columns), "uuid-1", owner, pinned or {})
    return plan_changes(
        CatalogEntry(True, table), Target(PATH, OWNER, fields, {}, replaces=False, settings=BindingSettings(mode))
    )


def refusal(
    columns: tuple[NestedField, ...],
    *fields: NewColumn,
    mode: SchemaEvolution = FULL,
    pinned: dict[int, str] | None = None,
) -> str:
    with pytest.raises(UserError) as error:
        planned(columns, *fields, mode=mode, pinned=pinned)
    return str(error.value)


@pytest.mark.parametrize("needed", NEEDED, ids=str)
@pytest.mark.parametrize("existing", EXISTING, ids=str)
def test_every_pair_of_types_is_decided_and_only_widening_is_done_in_place(
    existing: PrimitiveType, needed: PrimitiveType
) -> None:
    change = find_type_change(existing, needed)
    assert (change is TypeChange.NONE) == (existing == needed)
    widened = {
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (DecimalType(8, 2), DecimalType(20, 2)),
    }
    assert (change is TypeChange.WIDEN) == ((existing, needed) in widened)
    if needed == StringType():
        assert change in (TypeChange.NONE, TypeChange.CONVERT)


def test_every_entry_of_the_table_is_of_types_that_occur() -> None:
    existing, needed = {type(each) for each in EXISTING}, {type(each) for each in (*NEEDED, TimestamptzNanoType())}
    assert all(old in existing and new in needed for old, new in TYPE_CHANGES)


def test_an_int_column_holds_integers_where_it_may_not_be_widened() -> None:
    assert can_hold(IntegerType(), LongType())
    assert not can_hold(FloatType(), DoubleType())
    columns = (column(1, "qty", IntegerType()),)
    assert planned(columns, wanted("qty"), mode=STRICT) == []
    assert planned(columns, wanted("qty"), mode=FULL) == [WidenColumn("qty", IntegerType(), LONG)]


def test_decimals_get_more_digits_in_place_and_another_scale_by_being_written_again() -> None:
    def change(precision: int, scale: int) -> TypeChange:
        return find_type_change(DecimalType(9, 2), DecimalType(precision, scale))

    assert change(10, 2) is TypeChange.WIDEN
    assert change(8, 2) is TypeChange.NONE
    assert {change(11, 4), change(9, 1), change(38, 0)} == {TypeChange.CONVERT}


CASES = {
    AddColumn: ((), (wanted("qty", former=""),)),
    MakeOptional: ((column(1, "qty", required=True),), (wanted("qty"),)),
    WidenColumn: ((column(1, "qty", FloatType()),), (wanted("qty", DoubleType()),)),
    RenameColumn: ((column(1, "qty"),), (wanted("amount", field="qty", former="qty"),)),
    ConvertColumn: ((column(1, "qty"),), (wanted("qty", StringType()),)),
    SetAsideColumn: ((column(1, "qty", DateType()),), (wanted("qty"),)),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mode", SchemaEvolution)
def test_a_mode_allows_its_alterations_and_refuses_all_others_with_the_mode_that_would(
    mode: SchemaEvolution, kind: type[Alteration]
) -> None:
    columns, fields = CASES[kind]
    if mode is FULL or (mode is ADD_COLUMNS and kind is AddColumn):
        assert [type(change) for change in planned(columns, *fields, mode=mode)] == [kind]
    else:
        error = refusal(columns, *fields, mode=mode)
        assert error.startswith("table shop.orders: ")
        assert "'qty'" in error
        assert ("add_columns" if kind is AddColumn else "full") in error


def test_a_column_that_gets_no_values_any_more_becomes_optional_only_in_full() -> None:
    columns = (column(1, "gone", required=True),)
    assert planned(columns) == [MakeOptional("gone")]
    assert "select its field" in refusal(columns, mode=ADD_COLUMNS)


def test_everything_that_a_mode_refuses_is_said_at_once() -> None:
    columns = (column(1, "gone", required=True), column(2, "qty", FloatType()))
    lines = refusal(columns, wanted("new"), wanted("qty", DoubleType()), mode=STRICT).splitlines()
    assert [line.split("'")[1] for line in lines] == ["new", "qty", "gone"]


def test_a_backfill_makes_no_column_required_under_its_id() -> None:
    """Branches and other readers may have older rows that have no value for it."""
    schema = Schema(column(1, "id"), column(2, "qty"), column(3, "note"))
    needed = [replace(wanted(name), required=True) for name in ("id", "qty", "note")]
    planned = plan_schema(schema, needed, identifier=["id"], arranged={1, 3}, last_column_id=7)
    assert [(each.field_id, each.name, each.required) for each in planned.fields] == [
        (8, "id", True),  # an identifier field cannot stay optional
        (9, "qty", True),
        (3, "note", False),
    ]


def test_a_column_whose_values_have_no_equivalents_is_set_aside_for_the_rows_that_are_there() -> None:
    columns = (column(1, "qty", DateType(), required=True), column(2, "other"))
    [change] = planned(columns, wanted("qty"), wanted("other"))
    assert change == SetAsideColumn("qty", DateType(), "qty_before_long", wanted("qty"))
    schema = alter_schema(Schema(*columns), [change], 7)
    assert [(each.field_id, each.name, each.field_type, each.required) for each in schema.fields] == [
        (1, "qty_before_long", DateType(), False),
        (2, "other", LONG, False),
        (8, "qty", LONG, False),
    ]
    assert describe_change(change, PATH) == (
        "alter table shop.orders: keep column 'qty' date as 'qty_before_long', and add column 'qty' long"
    )


def test_a_column_that_is_set_aside_for_decimals_has_a_plain_name() -> None:
    [change] = planned((column(1, "at", DateType()),), wanted("at", DecimalType(20, 4)))
    assert isinstance(change, SetAsideColumn)
    assert change.kept_as == "at_before_decimal"


def test_somebody_elses_decimals_are_written_as_they_are_where_the_field_asks_for_it() -> None:
    columns, other = (column(1, "qty", DecimalType(20, 4)),), Owner("acme/other", "shop%2Forders.v0")
    assert planned(columns, wanted("qty", DecimalType(12, 4), former=""), owner=other) == []
    for needed in (LONG, DoubleType(), DecimalType(12, 2)):
        with pytest.raises(UserError, match=r'{"decimal": {"precision": 20, "scale": 4}} in its field config'):
            planned(columns, wanted("qty", needed, former=""), owner=other)
    with pytest.raises(UserError) as error:
        planned(columns, wanted("qty", StringType(), former=""), owner=other)
    assert "precision" not in str(error.value)


def test_the_name_of_a_column_that_is_set_aside_is_free_and_not_too_long() -> None:
    long_names = "q" * MAX_NAME, "q" * (MAX_NAME - 1) + "r"
    columns = (
        *(column(1, "qty", DateType()), column(2, "QTY_before_long")),
        *(column(number, name, DateType()) for number, name in enumerate(long_names, 3)),
    )
    kept_as = [
        change.kept_as
        for change in planned(columns, wanted("qty"), wanted("qty_before_long_2"), *map(wanted, long_names))
        if isinstance(change, SetAsideColumn)
    ]
    shortened = ["q" * (MAX_NAME - len(suffix)) + suffix for suffix in ("_before_long", "_before_long_2")]
    assert kept_as == ["qty_before_long_3", *shortened]


def test_a_column_that_something_depends_on_is_not_set_aside() -> None:
    columns = (column(1, "qty", DateType()),)
    assert "the sort order of the table depends on the column" in refusal(
        columns, wanted("qty"), pinned={1: "the sort order"}
    )


def test_a_column_of_which_a_value_turned_out_to_have_no_equivalent_is_set_aside() -> None:
    schema = Schema(column(1, "qty", StringType()))
    fields = (wanted("qty"),)
    for unconvertible, kind in ((frozenset[int](), ConvertColumn), (frozenset({1}), SetAsideColumn)):
        table = ExistingTable(schema, "uuid-1", OWNER, unconvertible=unconvertible)
        [change] = plan_changes(CatalogEntry(True, table), Target(PATH, OWNER, fields, {}, replaces=False))
        assert isinstance(change, kind)


def test_a_column_that_is_converted_is_another_one_in_its_place() -> None:
    columns = (column(1, "qty", required=True), column(2, "other"))
    changes = planned(columns, wanted("amount", StringType(), field="qty", former="qty"), wanted("other"))
    alterations = [change for change in changes if isinstance(change, Alteration)]
    assert [type(change) for change in alterations] == [RenameColumn, ConvertColumn]
    [amount, other] = alter_schema(Schema(*columns), alterations, 7).fields
    assert (amount.field_id, amount.name, amount.field_type, amount.required) == (8, "amount", StringType(), False)
    assert other == columns[1]
    [converted] = find_converted_columns(Schema(*columns), alterations, 7)
    assert (converted.old.field_id, converted.new) == (1, amount)


def test_a_keys_column_is_not_set_aside() -> None:
    key = NewColumn("id", "id", LONG, True, "", True, "id")
    error = refusal((column(1, "id", DateType()),), key)
    assert "needs long, to which its values cannot be converted" in error
    assert "deselect" not in error


def test_somebody_elses_column_is_not_set_aside_for_a_field_that_has_not_been_written_to_it() -> None:
    columns, other = (column(1, "qty", DateType()),), Owner("acme/other", "shop%2Forders.v0")
    with pytest.raises(UserError, match=r'this task did not create the column.*{"column": "…"}'):
        planned(columns, wanted("qty", former=""), owner=other)
    assert planned(columns, wanted("qty", former="qty"), owner=other)
    assert planned(columns, wanted("qty", former=""), owner=OWNER)


def renamed(columns: tuple[str, ...], **names: str) -> list[TableChange]:
    """`names`: the column that each field is to have from now on; the fields had columns of their own names before."""
    fields = [wanted(name, field=field, former=field) for field, name in names.items()]
    return planned(tuple(column(number, name) for number, name in enumerate(columns, 1)), *fields)


def test_a_field_that_is_to_have_another_column_name_keeps_its_column() -> None:
    assert renamed(("Qty", "b"), qty="amount", b="b") == [RenameColumn("Qty", "amount")]


def test_a_rename_that_has_been_done_is_not_done_again() -> None:
    assert renamed(("amount",), qty="amount") == []
    # The old name may belong to another field by now.
    assert renamed(("amount", "qty"), qty="amount", other="qty") == []


def test_a_name_that_becomes_free_can_be_anothers() -> None:
    columns = (column(1, "a"), column(2, "b"))
    moves = [RenameColumn("a", "b"), RenameColumn("b", "c")]
    assert renamed(("a", "b"), a="b", b="c") == moves
    assert [(each.field_id, each.name) for each in alter_schema(Schema(*columns), moves, 2).fields] == [
        (1, "b"),
        (2, "c"),
    ]
    new = wanted("a", field="z", former="")
    moved = wanted("c", field="a", former="a")
    assert planned((column(1, "a"),), new, moved) == [RenameColumn("a", "c"), AddColumn(new)]


def test_columns_do_not_exchange_their_names() -> None:
    with pytest.raises(UserError, match="exchange") as error:
        renamed(("a", "b", "c"), a="b", b="c", c="a")
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("field", ["id", "flow_document"])
def test_a_key_or_a_document_does_not_move_to_a_column_with_values_of_its_own(field: str) -> None:
    columns = (column(1, field, StringType()), column(2, "note", StringType()))
    moved = NewColumn(field, "note", StringType(), False, "", is_indispensable=True, former=field)
    said = f"Field '{field}' has the column '{field}', and is to have 'note'"
    assert said in refusal(columns, moved)
    assert said in refusal(columns, moved, wanted(field, StringType(), field="other", former=""))


@pytest.mark.parametrize("field", ["id", "flow_document"])
def test_a_key_or_a_document_that_was_renamed_before_a_crash_has_left_its_name_to_a_newer_column(field: str) -> None:
    columns = (column(1, "note", StringType()), column(2, field, StringType()))
    renamed = NewColumn(field, "note", StringType(), False, "", is_indispensable=True, former=field)
    assert planned(columns, renamed, wanted(field, StringType(), field="other", former="")) == []


ID = NewColumn("id", "id", LONG, True, "", is_indispensable=True, former="id", is_key=True)
DOCUMENT = replace(ID, is_key=False, is_document=True)


def planned_for_updates(
    identifier_fields: IdentifierFields,
    wanted: NewColumn,
    *,
    has_rows: bool,
    is_new: bool = False,
    creator: str = OWNER.materialization,
) -> list[TableChange]:
    """The plan for a table whose column `id` another program has dropped or renamed."""
    owner = replace(OWNER, materialization=creator)
    existing = ExistingTable(Schema(column(1, "number")), "uuid-1", owner, has_rows=has_rows)
    settings = BindingSettings(identifier_fields=identifier_fields)
    target = Target(PATH, OWNER, (wanted,), {}, replaces=False, settings=settings, is_new=is_new)
    return plan_changes(CatalogEntry(True, existing), target)


@pytest.mark.parametrize("wanted", [ID, DOCUMENT], ids=["key", "document"])
def test_a_lost_key_or_document_is_not_added_again_where_rows_are_updated(wanted: NewColumn) -> None:
    """The rows that are there would have no key, and their updates would add rows. Or they would have no document, and
    could not be loaded."""
    with pytest.raises(UserError, match="Field 'id' had the column 'id', which the table has no more"):
        planned_for_updates(IdentifierFields.KEY, wanted, has_rows=True)
    assert planned_for_updates(IdentifierFields.KEY, replace(ID, name="number"), has_rows=True) == []


@pytest.mark.parametrize("wanted", [ID, DOCUMENT], ids=["key", "document"])
@pytest.mark.parametrize(
    ("is_new", "creator", "way_out"),
    [
        (False, OWNER.materialization, "increment the binding's backfill"),
        (False, "acme/other", "choose another table name"),
        (True, OWNER.materialization, "choose another table name"),  # the task or the binding was created again
    ],
)
def test_a_key_or_a_document_gets_no_new_column_where_older_rows_would_have_no_values(
    wanted: NewColumn, is_new: bool, creator: str, way_out: str
) -> None:
    wanted = replace(wanted, former="")
    with pytest.raises(UserError, match=rf"Field 'id' has no column in the table, .* for all rows: {way_out}"):
        planned_for_updates(IdentifierFields.KEY, wanted, has_rows=True, is_new=is_new, creator=creator)


def test_a_new_binding_adds_its_key_to_a_table_of_others() -> None:
    """Their rows have neither its keys nor its documents."""
    wanted = replace(ID, former="")
    [added] = planned_for_updates(IdentifierFields.KEY, wanted, has_rows=True, is_new=True, creator="acme/other")
    assert isinstance(added, AddColumn)


@pytest.mark.parametrize(
    ("identifier_fields", "wanted", "has_rows"),
    [
        (IdentifierFields.KEY, ID, False),
        (IdentifierFields.KEY, replace(ID, is_key=False), True),
        (IdentifierFields.KEPT, ID, True),
        (IdentifierFields.KEPT, DOCUMENT, True),
    ],
    ids=["no rows", "no part of the key", "delta updates", "a document of delta updates"],
)
def test_any_other_lost_column_is_added_again(
    identifier_fields: IdentifierFields, wanted: NewColumn, has_rows: bool
) -> None:
    [added] = planned_for_updates(identifier_fields, wanted, has_rows=has_rows)
    assert isinstance(added, AddColumn)


def test_names_that_differ_in_case_only_are_the_same_name() -> None:
    assert renamed(("qty",), qty="QTY") == []


def test_a_column_can_be_renamed_widened_and_made_optional_at_once() -> None:
    columns = (column(1, "qty", IntegerType(), required=True),)
    done = planned(columns, wanted("amount", field="qty", former="qty"))
    assert [type(change) for change in done] == [RenameColumn, WidenColumn, MakeOptional]
    [amount] = alter_schema(Schema(*columns), [change for change in done if isinstance(change, Alteration)], 1).fields
    assert (amount.field_id, amount.name, amount.field_type, amount.required) == (1, "amount", LONG, False)
