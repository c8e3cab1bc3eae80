from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, BooleanType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from connector.constraints import Candidate, constraints
from connector.errors import UserError
from connector.evolution import changes, columns
from connector.table_change import ExistingTable, Found, Owner, TableChange, Target
from protocol.flow import Collection, ConstraintType, Exists, FieldSelection, Json, StringInference
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, projection

REFUSALS = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}
PATH = ("shop", "orders")
OWNER = Owner(MATERIALIZATION, "shop%2Forders.v0")

types = st.lists(
    st.sampled_from(["null", "boolean", "object", "array", "integer", "number", "string"]), unique=True
).map(tuple)
strings = st.builds(
    StringInference,
    format=st.sampled_from(["", "date", "date-time", "integer", "number", "uuid"]),
    content_encoding=st.sampled_from(["", "base64"]),
)
field_configs = st.sampled_from([None, {}, {"castToString": True}, {"ignoreStringFormat": True}])


@st.composite
def collections(draw: st.DrawFn) -> Collection:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    values = [
        projection(name, *draw(types), string=draw(strings), exists=draw(st.sampled_from(Exists))) for name in names
    ]
    return collection(ID, DOCUMENT, *values)


schemas = st.dictionaries(
    st.sampled_from(["id", "flow_document", *"aBcDeF"]),
    st.sampled_from([BinaryType(), BooleanType(), DoubleType(), LongType(), StringType(), TimestamptzType()]),
).map(
    lambda columns: Schema(
        *(NestedField(number, name, each, required=True) for number, (name, each) in enumerate(columns.items(), 1))
    )
)


def planned(schema: Schema | None, bound: Collection, values: list[str], config: dict[str, Json]) -> list[TableChange]:
    table = ExistingTable(schema, "uuid-1", OWNER) if schema is not None else None
    wanted = columns(bound, FieldSelection(("id",), tuple(values), "", config))
    return changes(Found(True, table), Target(PATH, OWNER, wanted, {}, replaces=False))


@given(collections(), st.none() | schemas, st.dictionaries(st.sampled_from("abcdef"), field_configs))
def test_apply_accepts_every_field_that_validate_allows_and_no_other(
    bound: Collection, schema: Schema | None, config: dict[str, Json]
) -> None:
    refused: dict[str, bool] = {}
    for each in constraints(Candidate(bound, config, True, schema)):
        refused[each.field] = refused.get(each.field, False) or each.constraint.type in REFUSALS
    assume(not refused.pop("id"))
    planned(schema, bound, [field for field, is_refused in refused.items() if not is_refused], config)
    for field in (field for field, is_refused in refused.items() if is_refused):
        try:
            planned(schema, bound, [field], config)
        except UserError:
            continue
        # Nothing but null fits any column: validate says so whatever the field config, apply need not.
        assert config.get(field)
