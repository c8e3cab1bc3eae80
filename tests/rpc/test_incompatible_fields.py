"""A field is incompatible only if a backfill helps: by default, Flow raises the counter then, unasked, and publishes
without validating again. Everywhere else the field is forbidden, or validate refuses the binding."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType, TimestamptzType

from connector.config.values import ALLOW_EXISTING_TABLES
from connector.host.errors import UserError
from connector.iceberg.fences.fence import property_name
from connector.model.state import WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from connector.rpc.validate import validate
from protocol import request, response
from protocol.flow import (
    WHOLE_RANGE,
    Collection,
    ConstraintType,
    Json,
    Materialization,
    MaterializationBinding,
    StringInference,
    ValidateBinding,
)
from rpc.applied_bindings import RETAIN, applied, before
from support.bindings import ID, MATERIALIZATION, PATH, collection, local_config, projection
from support.bindings import materialization_binding as binding
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, local_catalog

OLD = collection(ID, projection("qty", "integer"))
OTHER_VALUE = collection(ID, projection("qty", "number"))
OTHER_KEY = collection(projection("id", "string"), projection("qty", "integer"))
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "qty", LongType()))
APPEND: Json = {"existing_table": "append"}
FORBIDDEN, INCOMPATIBLE, REQUIRED = (
    ConstraintType.FIELD_FORBIDDEN,
    ConstraintType.INCOMPATIBLE,
    ConstraintType.FIELD_REQUIRED,
)


@dataclass(frozen=True)
class Task:
    """A task with a binding whose field needs another type, in a table that no mode but `full` would change."""

    warehouse: Path
    resource: dict[str, Json]
    flags: str = ""
    is_new: bool = False
    old: Collection = OLD
    backfill: int = 0  # of the last publication
    config: dict[str, Json] = field(default_factory=dict)

    def bind(self, bound: Collection, backfill: int = 0) -> MaterializationBinding:
        made = binding(bound, "qty", backfill=backfill, field_config=self.config)
        return msgspec.structs.replace(made, resource_config={**made.resource_config, **self.resource})

    @property
    def last(self) -> Materialization | None:
        return None if self.is_new else before(replace(self, config={}).bind(self.old, self.backfill))

    def validate(self, bound: Collection, backfill: int = 0) -> response.ValidatedBinding:
        proposed = ValidateBinding(self.bind(bound).resource_config, bound, field_config=self.config, backfill=backfill)
        config = local_config(self.warehouse, feature_flags=self.flags)
        message = request.Validate(MATERIALIZATION, config=config, bindings=(proposed,), last_materialization=self.last)
        [answer] = validate(message).bindings
        return answer

    def apply(self, bound: Collection, backfill: int) -> str:
        new = self.bind(bound, backfill)
        return applied(self.warehouse, new, last=self.last, feature_flags=self.flags).action_description


def constrain(answer: response.ValidatedBinding, field: str) -> list[ConstraintType]:
    return [each.constraint.type for each in answer.projection_constraints if each.field == field]


def make_table(warehouse: Path, owner: str = "", *, has_rows: bool = True, schema: Schema = SCHEMA) -> None:
    properties = {OWNER_PROPERTY: Owner(owner, "shop%2Forders.v0").encode()} if owner else {}
    table = foreign_table(local_catalog(warehouse), PATH, schema, properties=properties)
    if has_rows:
        rows = pa.table({"id": [1], "qty": pa.array([1]).cast(table.schema().as_arrow().field("qty").type)})
        table.append(rows.cast(table.schema().as_arrow()))


def own(warehouse: Path) -> None:
    make_table(warehouse, MATERIALIZATION)


def pinned(warehouse: Path) -> None:
    """A partition spec names the columns, so `full` does not convert them either."""
    own(warehouse)
    with local_catalog(warehouse).load_table(PATH).update_spec() as change:
        change.add_identity("id").add_identity("qty")


def taken_over(warehouse: Path, tasks: Sequence[str] = (MATERIALIZATION,), *, schema: Schema = SCHEMA) -> None:
    """Estuary's S3 Iceberg connector has made it for the task, and has added files by name."""
    make_table(warehouse, schema=schema)
    table = local_catalog(warehouse).load_table(PATH)
    with table.transaction() as change:
        change.set_properties(
            {
                "flow_checkpoints_v1": json.dumps(dict.fromkeys(tasks, "00c0ffee")),
                "schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["qty"]}]',
            }
        )


def taken_over_by_two(warehouse: Path) -> None:
    taken_over(warehouse, (MATERIALIZATION, "acme/other"))


def taken_over_and_appended_to(warehouse: Path) -> None:
    """By another task, with this connector."""
    taken_over(warehouse)
    other = WriterId("acme/other", "shop%2Forders.v0", WHOLE_RANGE.key_range)
    with local_catalog(warehouse).load_table(PATH).transaction() as change:
        change.set_properties({property_name(other): "0" * 32})


def of_nobody(warehouse: Path) -> None:
    make_table(warehouse)


def empty(warehouse: Path) -> None:
    make_table(warehouse, has_rows=False)


def of_another_task(warehouse: Path) -> None:
    make_table(warehouse, "acme/other")


@pytest.mark.parametrize(
    ("make", "resource"),
    [
        (own, {"schema_evolution": "strict"}),
        (own, {"schema_evolution": "strict", **APPEND}),
        (taken_over, {"schema_evolution": "strict"}),
        (taken_over, {"schema_evolution": "strict", **APPEND}),
    ],
)
def test_apply_accepts_the_backfill_that_an_incompatible_field_asks_for(
    tmp_path: Path, make: Callable[[Path], None], resource: dict[str, Json], caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path)
    task = Task(tmp_path, resource)
    assert constrain(task.validate(OTHER_VALUE), "qty") == [INCOMPATIBLE]
    assert not caplog.records
    assert constrain(task.validate(OTHER_KEY), "id") == [REQUIRED, INCOMPATIBLE]
    for backfill, bound in enumerate([OTHER_KEY, OTHER_VALUE], start=1):
        assert "which replaces them all" in task.apply(bound, backfill)


def test_apply_accepts_the_backfill_of_a_table_whose_partition_spec_names_the_columns(tmp_path: Path) -> None:
    pinned(tmp_path)
    task = Task(tmp_path, {})
    assert constrain(task.validate(OTHER_VALUE), "qty") == [INCOMPATIBLE]
    assert constrain(task.validate(OTHER_KEY), "id") == [REQUIRED, INCOMPATIBLE]
    assert "drop table shop.orders" in task.apply(OTHER_KEY, 1)


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_apply_accepts_the_backfill_of_a_column_that_arranges_rows_in_a_table_that_awaits_one(
    tmp_path: Path, setting: str
) -> None:
    """Its setting does not change. Only the column does, which the table would get with its first rows."""
    task = Task(tmp_path, {setting: "qty"})
    task.apply(OLD, 0)
    task.apply(OLD, 1)
    task = replace(task, backfill=1)
    answer = task.validate(OTHER_VALUE, 1)
    assert constrain(answer, "qty") == [REQUIRED, INCOMPATIBLE]
    reasons = [each.constraint.reason for each in answer.projection_constraints if each.field == "qty"]
    check_text("validate_errors", f"a column of {setting} while a backfill is awaited", reasons[-1])
    with pytest.raises(UserError) as error:
        task.apply(OTHER_VALUE, 1)
    assert str(error.value) == f"table shop.orders: {reasons[-1]}"
    assert "drop table shop.orders" in task.apply(OTHER_VALUE, 2)


def test_a_column_that_no_longer_sorts_rows_gets_another_type_in_a_table_that_awaits_a_backfill(tmp_path: Path) -> None:
    task = Task(tmp_path, {"sort_by": "qty"})
    task.apply(OLD, 0)
    task.apply(OLD, 1)
    task = replace(task, resource={"sort_by": "id"}, backfill=1)
    assert constrain(task.validate(OTHER_VALUE, 1), "qty") == [ConstraintType.FIELD_OPTIONAL]
    assert "convert column 'qty' from long to double" in task.apply(OTHER_VALUE, 1)


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_a_column_that_arranges_rows_is_incompatible_also_if_the_mode_allows_no_other_arrangement(
    tmp_path: Path, setting: str
) -> None:
    task = Task(tmp_path, {setting: "qty", "schema_evolution": "strict"})
    task.apply(OLD, 0)
    assert constrain(task.validate(OTHER_VALUE), "qty") == [REQUIRED, INCOMPATIBLE]


def test_the_columns_of_a_table_that_was_taken_over_are_converted(tmp_path: Path) -> None:
    taken_over(tmp_path)
    task = Task(tmp_path, {})
    assert constrain(task.validate(OTHER_VALUE), "qty") == [ConstraintType.FIELD_OPTIONAL]
    assert "convert column 'qty' from long to double" in task.apply(OTHER_VALUE, 0)
    assert "which replaces them all" in task.apply(OTHER_KEY, 1)


NUMERIC, PLAIN_TEXT = (
    collection(ID, projection("qty", "string", string=StringInference(each))) for each in ("integer", "")
)
CAST: Json = {"qty": {"castToString": True}}


@pytest.mark.parametrize("make", [own, taken_over])
@pytest.mark.parametrize("mode", ["full", "strict"])
@pytest.mark.parametrize(("bound", "config"), [(PLAIN_TEXT, {}), (NUMERIC, CAST)], ids=["by the schema", "by the user"])
def test_a_column_of_numbers_whose_documents_had_strings_becomes_text_by_a_backfill_only(
    tmp_path: Path, make: Callable[[Path], None], mode: str, bound: Collection, config: dict[str, Json]
) -> None:
    """The column has 7, and a document may have had "007"."""
    make(tmp_path)
    task = Task(tmp_path, {"schema_evolution": mode}, old=NUMERIC, config=config)
    answer = task.validate(bound)
    assert constrain(answer, "qty") == [INCOMPATIBLE]
    reason = answer.constraints["qty"].reason
    check_text("validate_errors", "text instead of the numbers of older strings", reason)
    assert "which replaces them all" in task.apply(bound, backfill=1)


def test_a_column_whose_strings_a_field_of_another_name_had_becomes_text_by_a_backfill_only(tmp_path: Path) -> None:
    own(tmp_path)
    config: dict[str, Json] = {"amount": {"column": "qty"}}
    renamed = collection(ID, projection("amount", "string"))
    proposed = ValidateBinding(binding(renamed).resource_config, renamed, field_config=config)
    task = Task(tmp_path, {}, old=NUMERIC)
    message = request.Validate(
        MATERIALIZATION, config=local_config(tmp_path), bindings=(proposed,), last_materialization=task.last
    )
    [answer] = validate(message).bindings
    assert constrain(answer, "amount") == [INCOMPATIBLE]


@pytest.mark.parametrize(("field", "config"), [("qty", {}), ("QTY", {}), ("amount", {"amount": {"column": "qty"}})])
def test_a_column_becomes_text_by_a_backfill_only_also_if_its_field_was_left_out_before(
    tmp_path: Path, field: str, config: dict[str, Json]
) -> None:
    """Its schema allowed other strings already. But then a feature flag kept the rows, so Flow left it out."""
    own(tmp_path)
    kept = Task(tmp_path, {"schema_evolution": "strict"}, RETAIN, old=NUMERIC)
    assert constrain(kept.validate(PLAIN_TEXT), "qty") == [FORBIDDEN]
    last = before(binding(collection(ID, projection(field, "string")), field_config=config))
    proposed = ValidateBinding(kept.bind(PLAIN_TEXT).resource_config | {"schema_evolution": "full"}, PLAIN_TEXT)
    message = request.Validate(
        MATERIALIZATION, config=local_config(tmp_path), bindings=(proposed,), last_materialization=last
    )
    [answer] = validate(message).bindings
    assert constrain(answer, "qty") == [INCOMPATIBLE]


def test_a_field_that_was_left_out_counts_only_for_a_column_that_no_other_field_had(tmp_path: Path) -> None:
    own(tmp_path)
    both = collection(ID, projection("qty", "integer"), projection("QTY", "string"))
    proposed = ValidateBinding(binding(PLAIN_TEXT).resource_config | {"schema_evolution": "full"}, PLAIN_TEXT)
    message = request.Validate(
        MATERIALIZATION,
        config=local_config(tmp_path),
        bindings=(proposed,),
        last_materialization=before(binding(both, "qty")),
    )
    [answer] = validate(message).bindings
    assert INCOMPATIBLE not in constrain(answer, "qty")


def test_a_column_of_date_times_whose_documents_had_strings_is_told_with_a_date_time(tmp_path: Path) -> None:
    when = collection(ID, projection("qty", "string", string=StringInference("date-time")))
    timestamps = Schema(SCHEMA.fields[0], NestedField(2, "qty", TimestamptzType()))
    make_table(tmp_path, MATERIALIZATION, schema=timestamps)
    refused, lossy = (Task(tmp_path, {}, flags, old=when).validate(PLAIN_TEXT) for flags in ("", RETAIN))
    assert constrain(refused, "qty") == [INCOMPATIBLE]
    check_text("validate_errors", "text instead of the date-times of older strings", refused.constraints["qty"].reason)
    assert constrain(lossy, "qty") == [ConstraintType.FIELD_OPTIONAL]
    check_text("reasons", "date-times become text while a flag keeps the rows", lossy.constraints["qty"].reason)


def test_a_column_that_is_still_to_be_converted_to_text_becomes_text_in_place(tmp_path: Path) -> None:
    """Validate knows the last published schema, which apply may not have followed yet."""
    own(tmp_path)
    task = Task(tmp_path, {}, old=collection(ID, projection("qty", "integer", "string")))
    assert constrain(task.validate(PLAIN_TEXT), "qty") == [ConstraintType.FIELD_OPTIONAL]


def test_a_column_of_numbers_whose_documents_had_numbers_becomes_text_in_place(tmp_path: Path) -> None:
    own(tmp_path)
    task = Task(tmp_path, {}, old=OLD)
    assert constrain(task.validate(PLAIN_TEXT), "qty") == [ConstraintType.FIELD_OPTIONAL]
    assert "convert column 'qty' from long to string" in task.apply(PLAIN_TEXT, backfill=0)


def test_a_column_of_numbers_becomes_text_where_no_backfill_may_replace_the_rows_and_the_reason_says_what_is_lost(
    tmp_path: Path,
) -> None:
    own(tmp_path)
    task = Task(tmp_path, {}, RETAIN, old=NUMERIC)
    answer = task.validate(PLAIN_TEXT)
    assert constrain(answer, "qty") == [ConstraintType.FIELD_OPTIONAL]
    check_text("reasons", "numbers become text while a flag keeps the rows", answer.constraints["qty"].reason)
    assert "convert column 'qty' from long to string" in task.apply(PLAIN_TEXT, backfill=0)


PAIRS = {
    "integer beside number": projection("qty", "integer", "string", string=StringInference("number")),
    "a format of another vocabulary": projection("qty", "string", string=StringInference("int64")),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_text_that_the_public_connector_has_made_of_numbers_keeps_its_digits(tmp_path: Path, pair: str) -> None:
    """That connector has fewer pairs of types and formats whose columns are numeric."""
    bound = collection(ID, PAIRS[pair])
    schema = Schema(SCHEMA.fields[0], NestedField(2, "qty", StringType()))
    taken_over(tmp_path, schema=schema)
    task = Task(tmp_path, {}, old=bound)
    answer = task.validate(bound)
    assert constrain(answer, "qty") == [ConstraintType.FIELD_OPTIONAL]
    assert answer.constraints["qty"].reason == "The field has a column of type string."
    assert task.apply(bound, backfill=0) == ""


def test_other_text_becomes_numbers(tmp_path: Path) -> None:
    schema = Schema(SCHEMA.fields[0], NestedField(2, "qty", StringType()))
    make_table(tmp_path, MATERIALIZATION, schema=schema)
    bound = collection(ID, PAIRS["integer beside number"])
    assert "convert column 'qty' from string to double" in Task(tmp_path, {}, old=bound).apply(bound, backfill=0)
    warehouse = tmp_path / "taken over"
    taken_over(warehouse, schema=schema)
    assert "convert column 'qty' from string to long" in Task(warehouse, {}, old=NUMERIC).apply(NUMERIC, backfill=0)


KEPT = pytest.mark.parametrize(
    ("make", "resource", "flags", "is_new"),
    [
        pytest.param(own, {}, RETAIN, False, id="the flag"),
        pytest.param(own, {}, "", True, id="a new binding"),
        pytest.param(taken_over, {}, RETAIN, False, id="taken over, and the flag"),
        pytest.param(taken_over, APPEND, "", True, id="taken over by a new binding"),
        pytest.param(taken_over_by_two, {}, "", False, id="taken over by two tasks"),
        pytest.param(taken_over_and_appended_to, APPEND, "", False, id="taken over, and another task's"),
        pytest.param(of_nobody, APPEND, "", False, id="appended to"),
        pytest.param(of_nobody, APPEND, "", True, id="appended to by a new binding"),
        pytest.param(of_nobody, {}, ALLOW_EXISTING_TABLES, False, id="the flag for existing tables"),
        pytest.param(empty, APPEND, "", False, id="without rows"),
        pytest.param(of_another_task, APPEND, "", False, id="of another task"),
        pytest.param(of_another_task, APPEND, "", True, id="of another task, a new binding"),
    ],
)


@KEPT
def test_a_field_is_forbidden_where_flow_must_not_replace_the_rows(
    tmp_path: Path,
    make: Callable[[Path], None],
    resource: dict[str, Json],
    flags: str,
    is_new: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(tmp_path)
    task = Task(tmp_path, {"schema_evolution": "strict", **resource}, flags, is_new)
    answer = task.validate(OTHER_VALUE)
    assert constrain(answer, "qty") == [FORBIDDEN]
    assert answer.constraints["qty"].type is FORBIDDEN
    warned = "table shop.orders: field 'qty' was selected, and cannot be selected any more" in caplog.text
    assert warned is not is_new, "Flow leaves a forbidden field out without a word"


@KEPT
def test_a_binding_is_refused_if_its_table_needs_such_a_field(
    tmp_path: Path, make: Callable[[Path], None], resource: dict[str, Json], flags: str, is_new: bool
) -> None:
    make(tmp_path)
    task = Task(tmp_path, {"schema_evolution": "strict", **resource}, flags, is_new)
    with pytest.raises(UserError, match=r"^bindings\[0\] \(acme/orders\): Field 'id' has a column of type long, but"):
        task.validate(OTHER_KEY)


def test_a_raised_counter_does_not_help_while_the_flag_keeps_the_rows(tmp_path: Path) -> None:
    own(tmp_path)
    task = Task(tmp_path, {"schema_evolution": "strict"}, RETAIN)
    answer = task.validate(OTHER_VALUE, backfill=1)
    assert constrain(answer, "qty") == [FORBIDDEN]
    check_text("validate_errors", "another type while a flag keeps the rows", answer.constraints["qty"].reason)
    with pytest.raises(UserError, match="remove the feature flag"):
        task.apply(OTHER_VALUE, backfill=1)
    without = Task(tmp_path, {"schema_evolution": "strict"})
    assert "which replaces them all" in without.apply(OTHER_VALUE, backfill=1)


def test_a_required_column_whose_field_cannot_stay_is_refused(tmp_path: Path) -> None:
    """Flow leaves a forbidden field out. Apply would refuse that, because the column is NOT NULL."""
    schema = Schema(SCHEMA.fields[0], NestedField(2, "qty", LongType(), required=True))
    foreign_table(local_catalog(tmp_path), PATH, schema)
    task = Task(tmp_path, {"schema_evolution": "strict", **APPEND})
    with pytest.raises(UserError) as error:
        task.validate(OTHER_VALUE)
    check_text("validate_errors", "another type for a required column that must stay", str(error.value))


NESTED = Schema(
    SCHEMA.fields[0],
    NestedField(2, "a", StructType(NestedField(3, "b", LongType()))),
    NestedField(4, "x", ListType(5, LongType())),
    NestedField(6, "y", MapType(7, StringType(), 8, LongType())),
    NestedField(9, "qty", LongType()),
)


@pytest.mark.parametrize("name", ["a.b", "A.b", "x.element", "y.key"])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_name_within_another_column_is_no_name_of_a_new_column(
    tmp_path: Path, name: str, *, is_renamed: bool
) -> None:
    foreign_table(local_catalog(tmp_path), PATH, NESTED)
    field = "qty" if is_renamed else name
    config: dict[str, Json] = {"qty": {"column": name}} if is_renamed else {}
    bound = collection(ID, projection(field, "integer"))
    new, old = (
        msgspec.structs.replace(made, resource_config={**made.resource_config, **APPEND})
        for made in (binding(bound, field, field_config=config), binding(bound, *["qty"][: 1 if is_renamed else 0]))
    )
    proposed = ValidateBinding(new.resource_config, bound, field_config=config)
    message = request.Validate(
        MATERIALIZATION, config=local_config(tmp_path), bindings=(proposed,), last_materialization=before(old)
    )
    [answer] = validate(message).bindings
    assert constrain(answer, field) == [FORBIDDEN]
    with pytest.raises(UserError) as error:
        applied(tmp_path, new, last=before(old))
    assert str(error.value) == f"table shop.orders: {answer.constraints[field].reason}"
    if (name, field) == ("a.b", "a.b"):
        check_text("apply_errors", "a new column with a name within another one", str(error.value))
