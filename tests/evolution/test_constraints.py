import json
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from connector.config.terms import parse_partition_by, parse_sort_by
from connector.config.values import NameCase, SchemaEvolution
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.candidate import Candidate
from connector.evolution.column_fits import Evolution
from connector.evolution.constraints import find_problems, list_constraints, pick_most_severe
from connector.evolution.existing_table import ExistingTable
from connector.evolution.field_config import RESERVED_NAMES, change_case, fold_case, match_columns, parse_field_configs
from connector.evolution.refusals import ChangeRules
from connector.evolution.type_mapping import NUMERIC_STRINGS
from connector.model.binding import PLAIN, Arrangement, SortField
from connector.model.table_identifier import Owner
from protocol.flow import (
    Collection,
    Constraint,
    ConstraintType,
    Exists,
    FieldSelection,
    Json,
    MaterializationBinding,
    Projection,
    ProjectionConstraint,
    StringInference,
)
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, projection
from support.repository import TESTS
from support.snapshots import are_updated

STRING = StringType()

# Regenerated where the environment has UPDATE_SNAPSHOTS.
SNAPSHOTS = TESTS / "snapshots" / "constraints.json"

EVERYTHING = collection(
    ID,
    projection("id again", "integer", ptr="/id"),
    DOCUMENT,
    projection("document again", "object", ptr=""),
    projection("_meta/op", "string"),
    projection("_meta/uuid", "string"),
    projection("only null", "null"),
    projection("no type"),
    projection("boolean", "boolean"),
    projection("integer", "integer"),
    projection("number", "number"),
    projection("string", "string", "null"),
    projection("date", "string", string=StringInference("date")),
    projection("binary", "string", string=StringInference(content_encoding="base64")),
    projection("numeric string", "string", string=StringInference("number")),
    projection("integers and strings", "integer", "string", string=StringInference("int64")),
    projection("array", "array"),
    projection("object", "object", "null"),
    projection("object or array", "object", "array"),
    projection("integer or string", "integer", "string"),
    projection("l" * 255, "string"),
    projection("l" * 256, "string"),
    projection("_file", "string"),
    projection("_POS", "string"),
)


FORMATS = [
    *NUMERIC_STRINGS,
    "date-time",
    "date",
    "time",
    "uuid",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv6",
    "made up",
]
STRINGS = collection(
    ID,
    *(projection(f"string of {each}", "string", string=StringInference(each)) for each in FORMATS),
    *(projection(f"{each} or a string of it", "integer", "string", string=StringInference(each)) for each in FORMATS),
    projection("number or a string of number", "number", "string", "null", string=StringInference("number")),
    projection("number or a string of integer", "number", "string", string=StringInference("integer")),
    projection("base64 of a date", "string", string=StringInference("date", content_encoding="base64")),
    projection("another encoding", "string", string=StringInference(content_encoding="gzip")),
    projection("base64 or an integer", "integer", "string", string=StringInference(content_encoding="base64")),
)
NUMERIC_KEY = collection(
    projection("id", "string", string=StringInference("integer")),
    projection("code", "integer", "string", string=StringInference("int64")),
    DOCUMENT,
    key=("/id", "/code"),
)
OTHER_KEY = collection(
    ID, projection("date", "string"), projection("code", "integer"), DOCUMENT, key=("/date", "/code")
)
TWINS = collection(
    ID,
    projection("id as well", "integer", ptr="/id"),
    projection("qty", "integer"),
    projection("quantity", "integer", ptr="/qty"),
    projection("price", "number"),
    projection("cost", "number", ptr="/price"),
)


def column(number: int, name: str, type_: IcebergType = STRING, *, required: bool = False) -> NestedField:
    return NestedField(number, name, type_, required=required)


def table(
    *columns: NestedField,
    mode: SchemaEvolution = SchemaEvolution.FULL,
    owner: str = MATERIALIZATION,
    arrangement: Arrangement = PLAIN,
    identifiers: tuple[int, ...] = (),
    partition_fields: Mapping[str, int] = MappingProxyType({}),
    identifier_fields: IdentifierFields = IdentifierFields.KEPT,
) -> Evolution:
    schema = Schema(*columns, identifier_field_ids=[*identifiers])
    existing = ExistingTable(
        schema,
        "uuid-1",
        Owner(owner, "shop%2Forders.v0"),
        arrangement=arrangement,
        partition_fields=partition_fields,
    )
    return Evolution(ChangeRules(existing, MATERIALIZATION, BindingSettings(mode, identifier_fields=identifier_fields)))


EXISTING = (
    column(1, "ID", LongType(), required=True),
    column(2, "flow_document"),
    column(3, "only null"),
    column(4, "integer", LongType()),
    column(5, "number"),
    column(6, "date"),
    column(7, "array", LongType()),
    column(8, "numeric string"),
    column(9, "string", required=True),
    column(10, "integers and strings", IntegerType()),
    column(11, "boolean", DateType()),
)
CAST = parse_field_configs({"number": {"castToString": True}, "array": {"castToString": True}})
RENAMED = parse_field_configs(
    {
        "integer": {"column": "amount"},
        "number": {"column": "boolean"},
        "boolean": {"column": "number"},
        "date": {"column": ""},
        "object": {"column": "l" * 256},
        "string": {"column": "text", "castToString": True},
    }
)


def applied(names: Mapping[str, str]) -> MaterializationBinding:
    """A binding that had columns of these names, by field."""
    config = {field: {"column": name} for field, name in names.items()}
    return MaterializationBinding(field_selection=FieldSelection(values=tuple(names), field_config=config))


FORMER = applied({name: name for name in ("integer", "number", "boolean", "string")})
WRONG_KEY = (column(1, "id"), column(2, "document again", LongType()), column(3, "no field's", required=True))
DEPENDED_ON = (column(1, "id", required=True), column(2, "integer"), column(3, "date", BooleanType(), required=True))
STRICT, ADD_COLUMNS, FULL = SchemaEvolution
SORTED = Arrangement(sort=(SortField(2, "identity", is_descending=False, nulls_first=True),))
TERMS = ArrangementTerms(parse_partition_by("bucket(4, id), truncate(2, integer)"), parse_sort_by("date, integer"))
TERMED = collection(ID, *(projection(name, "integer") for name in ("integer", "date", "id_bucket_4")), DOCUMENT)


def columns_of(bound: Collection, type_: IcebergType) -> Evolution:
    """A table that has a column of this type for every field."""
    names = (each.field for each in bound.projections)
    return table(*(column(number, name, type_) for number, name in enumerate(names, start=1)))


ORDERS = collection(ID, DOCUMENT, projection("note", "string"), projection("qty", "integer"))
OF_DELTA_UPDATES = (column(1, "id", LongType(), required=True), column(2, "flow_document", required=True))

AMOUNTS = collection(ID, *(projection(name, "integer", "null") for name in "abcdefgh"))
DECIMALS = parse_field_configs(
    {each.field: {"decimal": {"precision": 12, "scale": 2}} for each in AMOUNTS.projections[1:7]}
)
DECIMAL_COLUMNS = (
    column(1, "id", DecimalType(9, 0), required=True),
    column(2, "a", DecimalType(9, 2), required=True),
    column(3, "b", DecimalType(12, 2)),
    column(4, "c", DecimalType(38, 2)),
    column(5, "d", DecimalType(12, 3)),
    column(6, "e", LongType()),
    column(7, "f", DateType()),
    column(8, "g", DecimalType(12, 2)),
)

SCENARIOS = {
    "decimals, no table": Candidate(AMOUNTS, DECIMALS, True),
    "decimals, existing table": Candidate(AMOUNTS, DECIMALS, True, table(*DECIMAL_COLUMNS)),
    "decimals, existing table, strict": Candidate(AMOUNTS, DECIMALS, True, table(*DECIMAL_COLUMNS, mode=STRICT)),
    "decimals, somebody else's table": Candidate(AMOUNTS, DECIMALS, True, table(*DECIMAL_COLUMNS, owner="acme/other")),
    "strings of every format, no table": Candidate(STRINGS, {}, True),
    "strings of every format, columns of strings": Candidate(STRINGS, {}, True, columns_of(STRINGS, STRING)),
    "strings of every format, columns of longs": Candidate(STRINGS, {}, True, columns_of(STRINGS, LongType())),
    "keys of numeric strings, no table": Candidate(NUMERIC_KEY, {}, True),
    "keys of numeric strings, existing table": Candidate(NUMERIC_KEY, {}, True, columns_of(NUMERIC_KEY, STRING)),
    "keys of numeric strings, columns of longs": Candidate(NUMERIC_KEY, {}, True, columns_of(NUMERIC_KEY, LongType())),
    "another key, without a column for a part of it": Candidate(OTHER_KEY, {}, True, table(*EXISTING)),
    "another key, without a column for a part of it, strict": Candidate(
        OTHER_KEY, {}, True, table(*EXISTING, mode=STRICT)
    ),
    "several fields of one location, no table": Candidate(TWINS, {}, True),
    "several fields of one location, some with columns": Candidate(
        TWINS, {}, True, table(column(1, "id as well", LongType(), required=True), column(2, "quantity", STRING))
    ),
    "a field that was deselected": Candidate(
        ORDERS,
        {},
        True,
        table(*OF_DELTA_UPDATES, column(3, "note"), column(4, "qty", LongType())),
        last=applied({"id": "id"}),
    ),
    "a field that is no longer cast to string": Candidate(
        ORDERS, {}, True, table(*OF_DELTA_UPDATES, column(3, "qty")), last=applied({"id": "id", "qty": "qty"})
    ),
    "a field that has its own name again": Candidate(
        ORDERS, {}, True, table(*OF_DELTA_UPDATES, column(3, "amount", LongType())), last=applied({"qty": "amount"})
    ),
    "fields that differ in case, no table": Candidate(
        collection(ID, projection("Note", "string"), projection("note", "string"), projection("ID", "string")), {}, True
    ),
    "fields that differ in case, existing table": Candidate(
        collection(ID, projection("Note", "string"), projection("note", "string")),
        {},
        True,
        table(column(1, "id", LongType()), column(2, "note")),
    ),
    "standard updates, a table of delta updates": Candidate(ORDERS, {}, False, table(*OF_DELTA_UPDATES)),
    "delta updates, a table of standard updates": Candidate(ORDERS, {}, True, table(*OF_DELTA_UPDATES)),
    "delta updates, no table": Candidate(EVERYTHING, {}, True),
    "standard updates, no table": Candidate(EVERYTHING, {}, False),
    "delta updates, existing table": Candidate(EVERYTHING, {}, True, table(*EXISTING)),
    "delta updates, existing table, strict": Candidate(EVERYTHING, {}, True, table(*EXISTING, mode=STRICT)),
    "delta updates, existing table, add_columns": Candidate(EVERYTHING, {}, True, table(*EXISTING, mode=ADD_COLUMNS)),
    "standard updates, existing table": Candidate(EVERYTHING, {}, False, table(*EXISTING)),
    "delta updates, somebody else's table": Candidate(EVERYTHING, {}, True, table(*EXISTING, owner="acme/other")),
    "standard updates, somebody else's table, key of another type": Candidate(
        collection(projection("id", "string"), projection("qty", "string"), DOCUMENT),
        {},
        False,
        table(
            column(1, "id", DoubleType()),
            column(2, "qty", DoubleType()),
            column(3, "flow_document"),
            owner="acme/other",
            identifier_fields=IdentifierFields.KEY,
        ),
        last=applied({name: name for name in ("id", "qty", "flow_document")}),
    ),
    "delta updates, existing table, cast to string": Candidate(EVERYTHING, CAST, True, table(*EXISTING)),
    "standard updates, incompatible key and document": Candidate(EVERYTHING, {}, False, table(*WRONG_KEY)),
    "columns that something depends on": Candidate(
        EVERYTHING, {}, True, table(*DEPENDED_ON, arrangement=SORTED, identifiers=(1, 3))
    ),
    "partition fields of another engine": Candidate(
        TERMED,
        {},
        True,
        table(column(1, "id"), column(2, "date"), partition_fields={"date": 2, "ID_bucket_4": 1, "integer": 7}),
    ),
    "terms, no table": Candidate(TERMED, {}, True, arrangement=TERMS),
    "terms, existing table": Candidate(
        TERMED, {}, True, table(column(1, "id"), column(2, "integer"), arrangement=SORTED), arrangement=TERMS
    ),
    "other column names, no table": Candidate(EVERYTHING, RENAMED, True),
    "other column names, existing table": Candidate(EVERYTHING, RENAMED, True, table(*EXISTING), last=FORMER),
    "other column names, existing table, add_columns": Candidate(
        EVERYTHING, RENAMED, True, table(*EXISTING, mode=ADD_COLUMNS), last=FORMER
    ),
    "a field that was deselected is selected again with another type": Candidate(
        EVERYTHING, CAST, True, table(column(1, "ID", LongType()), column(2, "number", DoubleType(), required=True))
    ),
    "another key": Candidate(
        collection(ID, projection("date", "string"), DOCUMENT, key=("/date",)), {}, True, table(*EXISTING)
    ),
    "grouped by other fields": Candidate(EVERYTHING, {}, True, None, ("date", "numeric string")),
    "grouped by other fields, existing table": Candidate(
        EVERYTHING, {}, True, table(*EXISTING), ("date", "numeric string")
    ),
}


def as_json(candidate: Candidate) -> Json:
    all_constraints = list_constraints(candidate)
    return {
        "constraints": [
            [each.field, each.constraint.type.value, each.constraint.reason, each.constraint.folded_field]
            for each in all_constraints
        ],
        "most severe of several": {
            field: constraint.type.value
            for field, constraint in pick_most_severe(all_constraints).items()
            if len(types_of(candidate, field)) > 1
        },
        "problems": find_problems(candidate),
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_field_has_its_constraints_and_their_reasons(scenario: str) -> None:
    recorded = json.loads(SNAPSHOTS.read_text()) if SNAPSHOTS.exists() else {}
    if are_updated():
        recorded[scenario] = as_json(SCENARIOS[scenario])
        SNAPSHOTS.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert as_json(SCENARIOS[scenario]) == recorded[scenario]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_plain_form_says_of_every_field_what_one_of_its_constraints_says(scenario: str) -> None:
    told = list_constraints(SCENARIOS[scenario])
    plain = pick_most_severe(told)
    assert list(plain) == list(dict.fromkeys(each.field for each in told))
    assert all(ProjectionConstraint(field, constraint) in told for field, constraint in plain.items())


def types_of(candidate: Candidate, field: str) -> list[ConstraintType]:
    return [each.constraint.type for each in list_constraints(candidate) if each.field == field]


def test_a_required_field_that_is_incompatible_carries_both_constraints() -> None:
    candidate = Candidate(collection(ID), {}, True, table(column(1, "id"), mode=ADD_COLUMNS))
    assert types_of(candidate, "id") == [ConstraintType.FIELD_REQUIRED, ConstraintType.INCOMPATIBLE]
    assert pick_most_severe(list_constraints(candidate))["id"].type is ConstraintType.INCOMPATIBLE


def test_the_reason_of_an_incompatible_field_names_the_field_its_column_and_the_type_that_it_needs() -> None:
    candidate = Candidate(
        collection(ID, projection("qty", "integer")), {}, True, table(column(1, "qty"), mode=ADD_COLUMNS)
    )
    reason = pick_most_severe(list_constraints(candidate))["qty"].reason
    assert "'qty'" in reason
    assert "type string" in reason
    assert "needs long" in reason


def test_a_column_is_found_whatever_its_case_and_by_its_very_name_first() -> None:
    bound = collection(ID, projection("Qty", "integer"))
    assert types_of(Candidate(bound, {}, True, table(column(1, "qTY", LongType()))), "Qty") == [
        ConstraintType.FIELD_OPTIONAL
    ]
    both = table(column(1, "qty"), column(2, "Qty", LongType()), column(3, "QTY"))
    assert types_of(Candidate(bound, {}, True, both), "Qty") == [ConstraintType.FIELD_OPTIONAL]


def test_a_nested_column_of_the_same_name_makes_way() -> None:
    nested = table(NestedField(1, "qty", StructType(NestedField(2, "n", LongType(), required=False)), required=False))
    candidate = Candidate(collection(ID, projection("qty", "integer")), {}, True, nested)
    assert types_of(candidate, "qty") == [ConstraintType.FIELD_OPTIONAL]
    assert "'qty_before_long'" in pick_most_severe(list_constraints(candidate))["qty"].reason


def test_the_older_form_has_every_field_once_with_its_most_severe_constraint_whatever_their_order() -> None:
    def several(*types: ConstraintType) -> list[ProjectionConstraint]:
        return [ProjectionConstraint("f", Constraint(each, each.value)) for each in types]

    optional, required, incompatible = (
        ConstraintType.FIELD_OPTIONAL,
        ConstraintType.FIELD_REQUIRED,
        ConstraintType.INCOMPATIBLE,
    )
    assert pick_most_severe(several(required, incompatible, optional))["f"].type is incompatible
    assert pick_most_severe(several(incompatible, optional, required))["f"].type is incompatible
    assert pick_most_severe(several(optional, required))["f"].type is required
    assert set(pick_most_severe(list_constraints(SCENARIOS["delta updates, existing table"]))) == {
        each.field for each in EVERYTHING.projections
    }


@pytest.mark.parametrize(
    "nullable",
    [
        projection("id", "integer", "null"),
        projection("id", "integer", exists=Exists.MAY),
        projection("id", "null"),
    ],
)
def test_a_key_that_may_be_null_needs_a_default(nullable: Projection) -> None:
    (problem,) = find_problems(Candidate(collection(nullable), {}, True))
    assert "'id'" in problem
    assert "default" in problem


@pytest.mark.parametrize(
    "fine",
    [ID, projection("id", "integer", "null", default=0), projection("id", "integer", exists=Exists.MAY, default=0)],
)
def test_a_key_that_has_a_default_or_is_never_null_is_fine(fine: Projection) -> None:
    assert find_problems(Candidate(collection(fine), {}, True)) == []


@pytest.mark.parametrize("delta_updates", [True, False])
@pytest.mark.parametrize("code", [projection("code", "string"), projection("code", "string", exists=Exists.MAY)])
def test_only_a_key_that_the_binding_takes_from_the_collection_needs_a_value(
    code: Projection, delta_updates: bool
) -> None:
    """Flow allows nulls in `groupBy`. A null there is a value of the key like any other."""
    bound = collection(projection("id", "integer", "null"), code, DOCUMENT)
    assert find_problems(Candidate(bound, {}, delta_updates, group_by=("code",))) == []
    assert len(find_problems(Candidate(bound, {}, delta_updates))) == 1


class CountedReads(tuple[Projection, ...]):
    """Projections that count how often they are read from the first one on."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[Projection]:
        CountedReads.reads += 1
        return super().__iter__()


def count_reads(fields: int) -> int:
    CountedReads.reads = 0
    projections = CountedReads((ID, DOCUMENT, *(projection(f"field{number}", "string") for number in range(fields))))
    candidate = Candidate(Collection("acme/orders", ("/id",), projections), {}, delta_updates=False)
    assert find_problems(candidate) == []
    assert len(list_constraints(candidate)) == len(projections)
    return CountedReads.reads


def test_a_collection_is_read_as_often_however_many_fields_it_has() -> None:
    """Otherwise, validate takes a hundred times as long for ten times as many fields."""
    assert count_reads(100) == count_reads(10)


def key_with_names(*fields: str) -> Collection:
    return collection(*(projection(field, "integer", ptr="/id") for field in fields))


def test_a_location_that_is_required_needs_a_name_that_is_short_enough() -> None:
    (problem,) = find_problems(Candidate(key_with_names("x" * 256, "y" * 300), {}, True))
    assert "/id" in problem
    assert "255" in problem
    assert find_problems(Candidate(key_with_names("x" * 256, "y" * 255), {}, True)) == []


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_name_that_iceberg_reserves_is_refused_unless_the_table_has_the_column(name: str) -> None:
    """Spark would not read the table."""
    reserved = projection("other", "string")
    configs = parse_field_configs({"other": {"column": name}})
    candidate = Candidate(collection(ID, reserved), configs, True)
    assert types_of(candidate, "other") == [ConstraintType.FIELD_FORBIDDEN]
    assert types_of(Candidate(collection(ID, reserved), {}, True), "other") == [ConstraintType.LOCATION_RECOMMENDED]
    [problem] = find_problems(Candidate(key_with_names(name), {}, True))
    assert name in problem
    assert find_problems(Candidate(key_with_names(name, "id"), {}, True)) == []

    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, name, StringType()))
    table = ExistingTable(schema, "uuid-1", Owner(MATERIALIZATION, "shop%2Forders.v0"))
    evolution = Evolution(ChangeRules(table, MATERIALIZATION))
    assert types_of(Candidate(collection(ID, reserved), configs, True, evolution), "other") == [
        ConstraintType.FIELD_OPTIONAL
    ]


def test_standard_updates_need_a_root_document_with_a_short_name() -> None:
    long_document = projection("d" * 256, "object", ptr="")
    assert find_problems(Candidate(collection(ID, long_document), {}, True)) == []
    (problem,) = find_problems(Candidate(collection(ID, long_document), {}, False))
    assert "root document" in problem


LOWER, UPPER = projection("note", "string"), projection("NOTE", "string")


@pytest.mark.parametrize("fields", [(LOWER, UPPER), (UPPER, LOWER)])
def test_of_two_fields_that_differ_in_case_only_the_second_is_refused(fields: tuple[Projection, ...]) -> None:
    first, second = (field.field for field in fields)
    candidate = Candidate(collection(ID, *fields), {}, True)
    assert types_of(candidate, first) == [ConstraintType.LOCATION_RECOMMENDED]
    assert types_of(candidate, second) == [ConstraintType.FIELD_FORBIDDEN]
    assert pick_most_severe(list_constraints(candidate))[second].reason.startswith(f"Field {first!r} has this column, ")
    assert find_problems(candidate) == []


def test_a_key_goes_before_a_field_whose_name_differs_in_case_only() -> None:
    candidate = Candidate(collection(projection("Id", "integer"), ID), {}, True)
    assert types_of(candidate, "id") == [ConstraintType.LOCATION_REQUIRED]
    assert types_of(candidate, "Id") == [ConstraintType.FIELD_FORBIDDEN]


def test_a_root_document_is_refused_where_a_field_before_it_differs_in_case_only() -> None:
    rivals = collection(ID, projection("Flow_Document", "string"), DOCUMENT)
    assert types_of(Candidate(rivals, {}, True), "flow_document") == [ConstraintType.FIELD_FORBIDDEN]


def test_another_column_of_its_own_ends_the_clash_of_two_fields() -> None:
    candidate = Candidate(collection(ID, LOWER, UPPER), parse_field_configs({"NOTE": {"column": "loud note"}}), True)
    assert types_of(candidate, "NOTE") == [ConstraintType.LOCATION_RECOMMENDED]


def test_who_was_given_the_column_goes_before_who_has_it_by_its_name_only() -> None:
    candidate = Candidate(
        collection(ID, LOWER, projection("text", "string")), parse_field_configs({"text": {"column": "Note"}}), True
    )
    assert types_of(candidate, "note") == [ConstraintType.FIELD_FORBIDDEN]
    assert types_of(candidate, "text") == [ConstraintType.LOCATION_RECOMMENDED]


def test_a_field_that_a_setting_names_goes_before_who_was_given_its_column() -> None:
    bound, configs = collection(ID, LOWER, projection("text", "string")), {"text": {"column": "Note"}}
    terms = ArrangementTerms(sort_by=parse_sort_by("note"))
    candidate = Candidate(bound, parse_field_configs(configs), True, arrangement=terms)
    assert types_of(candidate, "note") == [ConstraintType.FIELD_REQUIRED]
    assert types_of(candidate, "text") == [ConstraintType.FIELD_FORBIDDEN]


def test_a_part_of_the_key_that_was_not_selected_before_is_one() -> None:
    bound = collection(
        ID, projection("id again", "integer", ptr="/id"), projection("part", "integer"), key=("/id", "/part")
    )
    last = MaterializationBinding(field_selection=FieldSelection(("id again",)))
    candidate = Candidate(bound, {}, False, last=last)
    made = [each.make_column(LongType()) for each in candidate.fields]
    assert {each.field: each.is_key for each in made} == {"id": False, "id again": True, "part": True}


@pytest.mark.parametrize("case", NameCase)
@pytest.mark.parametrize(
    ("column_name", "former"), [("note", {"NOTE": "NOTE"}), ("NOTE", {}), ("note", {"NOTE": "note", "id": "id"})]
)
def test_who_has_the_column_already_keeps_it(column_name: str, former: dict[str, str], case: NameCase) -> None:
    existing = table(column(1, "id", LongType()), column(2, column_name))
    candidate = Candidate(collection(ID, LOWER, UPPER), {}, True, existing, last=applied(former), field_name_case=case)
    assert types_of(candidate, "NOTE") == [ConstraintType.FIELD_OPTIONAL]
    assert types_of(candidate, "note") == [ConstraintType.FIELD_FORBIDDEN]


def test_a_field_without_a_type_takes_no_column_from_another() -> None:
    candidate = Candidate(collection(ID, projection("note", "null"), UPPER), {}, True)
    assert types_of(candidate, "NOTE") == [ConstraintType.LOCATION_RECOMMENDED]


# Java's String.equalsIgnoreCase finds the first four pairs equal, and the last two different.
@pytest.mark.parametrize(
    ("name", "other", "is_same"),
    [
        ("i", "\u0131", True),
        ("İon", "ion", True),
        ("kelvin", "\u212aelvin", True),
        ("\u017fize", "SIZE", True),
        ("ß", "ss", False),
        ("é", "e", False),
    ],
)
def test_names_that_are_equal_by_javas_rules_are_one_column(name: str, other: str, is_same: bool) -> None:
    bound = collection(ID, projection(name, "string"), projection(other, "string"))
    refused = [ConstraintType.FIELD_FORBIDDEN] if is_same else [ConstraintType.LOCATION_RECOMMENDED]
    assert types_of(Candidate(bound, {}, True), other) == refused
    assert (fold_case(name) == fold_case(other)) is is_same
    assert bool(match_columns(Schema(column(1, name)), [other])) is is_same


def test_two_keys_that_differ_in_case_only_are_refused_by_both_their_names() -> None:
    keys = (projection("id", "integer"), projection("ID", "integer"))
    bound = collection(*keys, key=("/id", "/ID"))
    assert find_problems(Candidate(bound, {}, True)) == [
        "fields 'id' and 'ID' must both be materialized, and their columns' names differ in upper and lower case only. "
        'Give one of them another with {"column": "…"} in its field config.'
    ]
    assert find_problems(Candidate(bound, parse_field_configs({"ID": {"column": "other id"}}), True)) == []
    assert (
        find_problems(
            Candidate(collection(*keys, projection("other", "integer", ptr="/ID"), key=("/id", "/ID")), {}, True)
        )
        == []
    )


@pytest.mark.parametrize(
    ("case", "name"),
    [(NameCase.PRESERVE, ""), (NameCase.LOWERCASE, "createdat"), (NameCase.UPPERCASE, "CREATEDAT")],
)
def test_the_runtime_is_told_the_name_of_the_column_in_its_case(case: NameCase, name: str) -> None:
    bound = collection(ID, projection("createdAt", "string"), projection("Named", "string"))
    configs = parse_field_configs({"Named": {"column": "asWritten"}})
    constraints = list_constraints(Candidate(bound, configs, True, field_name_case=case))
    folded = {each.field: each.constraint.folded_field for each in constraints}
    assert (folded["createdAt"], folded["Named"]) == (name, "asWritten")


def test_a_change_of_case_makes_no_two_names_equal_that_were_not_equal_without_case() -> None:
    changed = (
        (character, name)
        for character in map(chr, range(sys.maxunicode + 1))
        for case in NameCase
        if (name := change_case(character, case)) != character
    )
    found = {fold_case(name) == fold_case(character) for character, name in changed}
    assert found == {True}
