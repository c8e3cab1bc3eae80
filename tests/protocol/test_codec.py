import json
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from protocol import codec, flow, request, response
from protocol.codec import decode_request, encode_response
from protocol.protocol_error import ProtocolError
from protocol.response import Response

COLLECTION = flow.Collection(
    name="acme/orders",
    key=("/id",),
    projections=(
        flow.Projection(
            ptr="/id",
            field="id",
            explicit=True,
            is_partition_key=True,
            is_primary_key=True,
            inference=flow.Inference(
                types=("string", "integer"),
                exists=flow.Exists.MUST,
                string=flow.StringInference("date-time", "text/plain", "base64", 64),
                numeric=flow.NumericInference(has_minimum=True, minimum=-1.5, has_maximum=True, maximum=2**40),
                default={"a": None},
                title="Id",
                description="The id",
                secret=True,
            ),
        ),
    ),
    uuid_ptr="/_meta/uuid",
)
MATERIALIZATION = flow.Materialization(
    name="acme/tables",
    connector_type="IMAGE",
    config={"bucket": "b", "prefix": None},
    bindings=(
        flow.MaterializationBinding(
            resource_config={"table": "orders"},
            resource_path=("shop", "orders"),
            collection=COLLECTION,
            field_selection=flow.FieldSelection(("id",), ("qty",), "flow_document", {"qty": {"castToString": None}}),
            delta_updates=True,
            backfill=3,
            state_key="shop%2Forders.v3",
        ),
    ),
    inactive_bindings=(flow.MaterializationBinding(collection_index=1),),
    linked_collections=(COLLECTION, flow.Collection(name="acme/customers")),
    shard_template=flow.ShardTemplate(flow.LabelSet((flow.LabelValue("estuary.dev/flag", "true"),))),
)
DecodedRequest: TypeAlias = (
    request.Spec
    | request.Validate
    | request.Apply
    | request.Open
    | request.Acknowledge
    | request.Flush
    | request.StartCommit
)
REQUEST_EXAMPLES: list[DecodedRequest] = [
    request.Spec("IMAGE", {"any": "thing"}),
    request.Validate(
        name="acme/tables",
        connector_type="IMAGE",
        config={"a": 1},
        bindings=(flow.ValidateBinding({"table": "orders"}, COLLECTION, 2, {"qty": None}, 1, ("id",)),),
        last_materialization=MATERIALIZATION,
        last_version="0011",
        linked_collections=(COLLECTION,),
    ),
    request.Apply(MATERIALIZATION, "0012", MATERIALIZATION, "0011", {"bindingStates": {"a": None}}),
    request.Open(MATERIALIZATION, "0012", flow.Range(1, 2, 3, 4), {"bindingStates": {}}),
    request.Acknowledge(({"a": 1}, None)),
    request.Flush(({"a": None},), (request.BackfillComplete(2, "2026-11-23T00:00:00.123Z"),)),
    request.StartCommit({"sources": {"a": "10"}}, (None, 3)),
]


def encoded(message: DecodedRequest) -> dict[str, Any]:
    """The message as the runtime would send it, every field there."""
    name = type(message).__name__
    return {name[0].lower() + name[1:]: msgspec.to_builtins(message)}


def line(value: object) -> bytes:
    return json.dumps(value).encode()


def reversed_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_objects(item) for name, item in reversed(value.items())}
    return [reversed_objects(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("message", REQUEST_EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_field_of_a_request_is_read(message: DecodedRequest) -> None:
    assert decode_request(line(encoded(message))) == message


@pytest.mark.parametrize("message", REQUEST_EXAMPLES, ids=lambda message: type(message).__name__)
def test_keys_may_come_in_any_order(message: DecodedRequest) -> None:
    assert decode_request(line(reversed_objects(encoded(message)))) == message


@pytest.mark.parametrize("message", REQUEST_EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_field_may_be_left_out_or_null(message: DecodedRequest) -> None:
    ((name, fields),) = encoded(message).items()
    assert decode_request(line({name: {}})) == type(message)()
    assert decode_request(line({name: dict.fromkeys(fields)})) == type(message)()


def test_a_null_inside_of_a_message_is_that_fields_default() -> None:
    projection = {"field": "id", "ptr": None, "explicit": None, "inference": {"types": None, "string": None}}
    binding = {
        "collection": {"name": None, "projections": [projection], "key": None},
        "fieldSelection": {"keys": ["id"], "fieldConfig": None, "document": None},
        "backfill": None,
    }
    opened = decode_request(line({"open": {"materialization": {"bindings": [binding]}, "range": {"keyEnd": None}}}))
    assert opened == request.Open(
        flow.Materialization(
            bindings=(
                flow.MaterializationBinding(
                    collection=flow.Collection(projections=(flow.Projection(field="id"),)),
                    field_selection=flow.FieldSelection(keys=("id",)),
                ),
            ),
        ),
        range=flow.Range(),
    )


def test_nulls_inside_of_opaque_json_are_kept() -> None:
    state = {"bindingStates": {"a": None, "b": [None, {"c": None}]}}
    selection = {"fieldConfig": {"qty": None, "price": {"cast": None}}}
    materialization = {"config": {"a": None}, "bindings": [{"resourceConfig": [None], "fieldSelection": selection}]}
    message = decode_request(line({"open": {"state": state, "materialization": materialization}}))
    assert isinstance(message, request.Open)
    assert message.state == state
    assert message.materialization.config == {"a": None}
    assert message.materialization.bindings[0].resource_config == [None]
    assert message.materialization.bindings[0].field_selection.field_config == selection["fieldConfig"]


def test_integers_may_be_strings() -> None:
    numbers = {"keyBegin": "0", "keyEnd": "4294967295", "rClockBegin": "9223372036854775807", "rClockEnd": "7"}
    message = decode_request(line({"open": {"range": numbers, "materialization": {"bindings": [{"backfill": "12"}]}}}))
    assert message == request.Open(
        flow.Materialization(bindings=(flow.MaterializationBinding(backfill=12),)),
        range=flow.Range(0, 4294967295, 9223372036854775807, 7),
    )


@pytest.mark.parametrize("number", ["18446744073709551616", "-" + "9" * 1000])
def test_an_integer_of_any_size_survives_in_opaque_json(number: str) -> None:
    message = decode_request(f'{{"startCommit":{{"runtimeCheckpoint":{{"n":{number}}}}}}}'.encode())
    assert message == request.StartCommit({"n": int(number)})


def test_unknown_fields_are_ignored_wherever_they_are() -> None:
    message = {
        "$internal": {"traceId": [1]},
        "apply": {
            "$internal": "x",
            "version": "1",
            "materialization": {"name": "n", "new": {"a": 1}, "bindings": [{"stateKey": "s", "priority": 3}]},
        },
        "somethingNew": 1,
    }
    materialization = flow.Materialization("n", bindings=(flow.MaterializationBinding(state_key="s"),))
    assert decode_request(line(message)) == request.Apply(materialization, "1")


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ('{"store":{"binding":3,"key":[1]}}', 3),
        ('{"store":{"key":[1],"values":[{"binding":9}],"binding":3}}', 3),
        ('{"store":{"binding":"10","key":[1]}}', 10),
        ('{"store":{"key":[1]}}', 0),
        ('{"store":{"binding":null,"key":[1]}}', 0),
        ('{"$internal":{"binding":4},"store":{"new":null,"key":[1]}}', 0),
        ('{"store":{"keyPacked":"FQ==","valuesPacked":"FQ==","binding":2}}', 2),
    ],
)
def test_a_store_is_kept_as_its_line(text: str, binding: int) -> None:
    whole = text.encode() + b"\n"
    expected = request.Store(binding, first_line=1, count=1, pieces=(whole,))
    assert decode_request(text.encode()) == expected
    assert decode_request(memoryview(whole)) == expected


def test_a_load_is_kept_as_its_line() -> None:
    whole = b'{"load":{"binding":"3","key":["a"]}}\n'
    assert decode_request(whole) == request.Load(3, first_line=1, count=1, pieces=(whole,))


def test_a_line_of_64_mib_is_a_request() -> None:
    large = "x" * (64 << 20)
    assert decode_request(line({"flush": {"statePatches": [large]}})) == request.Flush((large,))
    store = decode_request(line({"store": {"key": [large], "binding": 5}}))
    assert isinstance(store, request.Store)
    assert (store.binding, store.count) == (5, 1)
    assert store.size > len(large)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"flush":{}', "the line ends within its JSON, after 11 bytes"),
        (b'{"flush":{}} x', "trailing characters"),
        (b'{"flush":{}}{"flush":{}}', "trailing characters"),
        (b'["flush"]', "got `array`"),
        (b'{"flush":{"statePatches":["\xff"]}}', "not valid UTF-8"),
        (b'{"flush":' + b"[" * 100_000 + b"}", "nested too deeply"),
        (b"{}", "no message: expected one of spec, validate, apply, open, acknowledge"),
        (b'{"Flush":{}}', "no message"),
        (b'{"flush":null}', "no message"),
        (b'{"load":{},"flush":{}}', "several messages, load and flush: expected one"),
        (b'{"flush":{},"flush":{}}', "the message flush occurs 2 times: expected one"),
        (b'{"fl\\u0075sh":{},"flush":{}}', "the message flush occurs 2 times: expected one"),
        (b'{"store":0,"store":{"binding":1}}', "the message store occurs 2 times: expected one"),
        (b'{"x":1,"open":0,"open":{},"open":{}}', "the message open occurs 3 times: expected one"),
        (b'{"flush":{"statePatches":["\\ud800"]}}', "a string has half of a surrogate pair, which is no character"),
        (b'{"flush":[]}', "Expected `object`, got `array`"),
        (b'{"load":{"binding":"x"}}', "$.binding"),
        (b'{"store":{"binding":true}}', "$.binding"),
        (b'{"store":[]}', "got `array`"),
        (b'{"open":{"materialization":{"bindings":[{},null]}}}', "$.materialization.bindings[1]"),
    ],
)
def test_a_broken_line_is_named(text: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_request(text)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        b'{"flush":{}}',
        b' { "flush" : {} } \r\n',
        b'{"$internal":{"flush":{}},"new":"flush","flush":{},"new":1}',
        b'{"\\ud800":"\\udc00","flush":{}}',
        b'{"flush":{},"new":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["none", "spaces", "others", "half of a surrogate pair", "nested deeply"],
)
def test_other_members_of_a_line_do_not_disturb(text: bytes) -> None:
    assert decode_request(text) == request.Flush()


@pytest.mark.parametrize("name", ["load", "store"])
def test_a_line_is_not_split_for_half_of_a_surrogate_pair(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one line is decoded here, and splitting takes 25 times as long."""
    monkeypatch.delattr(codec, "parse_members")
    line = b'{"$internal":"\\udc00","%b":{"key":["\\\\","\\ud800"],"binding":3}}\n' % name.encode()
    run = decode_request(line)
    assert isinstance(run, request.Load | request.Store)
    assert (run.binding, run.pieces) == (3, (line,))


@pytest.mark.parametrize("value", [b'"\\ud800"', b"[" * 5000 + b"]" * 5000], ids=["half", "deep"])
def test_the_binding_of_a_store_is_read_whatever_its_values_are(value: bytes) -> None:
    store = decode_request(b'{"store":{"key":[%b],"binding":"5"}}' % value)
    assert isinstance(store, request.Store)
    assert store.binding == 5
    first = decode_request(b'{"store":{"key":[%b]}}' % value)
    assert isinstance(first, request.Store)
    assert first.binding == 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"open":{"materialization":{"config":{"key":"hunter2"},"name":{"hunter2":"hunter2"}}}}',
        b'{"open":{"materialization":{"config":{"key":"hunter2"',
        b'{"open":{"materialization":{"config":{"key":"hunter2\xff"}}}}',
        b'{"hunter2":{"config":"hunter2"}}',
    ],
)
def test_an_error_shows_no_value(text: bytes) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_request(text)
    assert "hunter2" not in str(raised.value)


STATE = flow.ConnectorState({"bindingStates": {"a": None, "n": 2**70}})
RESPONSE_EXAMPLES: list[tuple[Response, dict[str, Any]]] = [
    (
        response.Spec({"type": "object"}, {}, "https://example.com"),
        {
            "spec": {
                "configSchema": {"type": "object"},
                "resourceConfigSchema": {},
                "documentationUrl": "https://example.com",
                "protocol": 3032023,
            }
        },
    ),
    (
        response.Validated(
            (
                response.ValidatedBinding(
                    constraints={"my_field": flow.Constraint(flow.ConstraintType.FIELD_OPTIONAL, "why", "folded")},
                    projection_constraints=(
                        flow.ProjectionConstraint("f", flow.Constraint(flow.ConstraintType.INCOMPATIBLE, "why")),
                    ),
                    resource_path=("shop", "orders"),
                    delta_updates=True,
                ),
            )
        ),
        {
            "validated": {
                "bindings": [
                    {
                        "constraints": {
                            "my_field": {"type": "FIELD_OPTIONAL", "reason": "why", "foldedField": "folded"}
                        },
                        "projectionConstraints": [
                            {"field": "f", "constraint": {"type": "INCOMPATIBLE", "reason": "why"}}
                        ],
                        "resourcePath": ["shop", "orders"],
                        "deltaUpdates": True,
                    }
                ]
            }
        },
    ),
    (
        response.Applied("created\ntable", STATE),
        {"applied": {"actionDescription": "created\ntable", "state": {"updated": STATE.updated, "mergePatch": True}}},
    ),
    (response.Opened(), {"opened": {}}),
    (response.Acknowledged(), {"acknowledged": {}}),
    (response.Loaded(b'{"loaded":{"binding":2,"doc":{"a":null}}}\n'), {"loaded": {"binding": 2, "doc": {"a": None}}}),
    (response.Flushed(), {"flushed": {}}),
    (
        response.StartedCommit(STATE),
        {"startedCommit": {"state": {"updated": STATE.updated, "mergePatch": True}}},
    ),
]


@pytest.mark.parametrize(("message", "expected"), RESPONSE_EXAMPLES, ids=[next(iter(e)) for _, e in RESPONSE_EXAMPLES])
def test_a_response_is_one_line_under_its_name(message: Response, expected: dict[str, Any]) -> None:
    text = bytes(encode_response(message))
    assert json.loads(text) == expected
    assert text.index(b"\n") == len(text) - 1


SUFFIX: Final = "materialize/acmeCo/lake"


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"at": 7}, {}),
        ({"sources": [1]}, {}),
        ({"sources": {"acmeCo/orders/pivot=00": {"readThrough": "7"}}}, {}),
        ({"sources": {f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": {"readThrough": "x"}}}, {}),
        ({"sources": {f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": {"readThrough": "9" * 30}}}, {}),
        ({"sources": {f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": None}}, {}),
        # proto3 leaves out a zero
        ({"sources": {f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": {}}}, {"a.v1": {"acmeCo/orders/pivot=00": 0}}),
        (
            {
                "sources": {
                    f"acmeCo/orders/pivot=80;{SUFFIX}/a.v1": {"readThrough": "12", "producers": [{"id": "BwA="}]},
                    f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": {"readThrough": 7},
                    f"acmeCo/orders/pivot=00;{SUFFIX}/b%2Fc.v0": {"readThrough": "3"},
                },
                "ackIntents": {},
            },
            {
                "a.v1": {"acmeCo/orders/pivot=00": 7, "acmeCo/orders/pivot=80": 12},
                "b%2Fc.v0": {"acmeCo/orders/pivot=00": 3},
            },
        ),
    ],
)
def test_the_offsets_of_a_checkpoint_go_by_state_key(checkpoint: Any, expected: Any) -> None:
    found = request.StartCommit(checkpoint).describe_offsets(1_000)
    assert {state_key: json.loads(text) for state_key, text in found.items()} == expected


def test_offsets_that_are_too_long_are_left_out() -> None:
    sources = {f"acmeCo/orders/pivot=00;{SUFFIX}/a.v1": {"readThrough": "7"}}
    sources |= {f"acmeCo/many/pivot={n:02x};{SUFFIX}/b.v1": {"readThrough": "7"} for n in range(50)}
    assert [*request.StartCommit({"sources": sources}).describe_offsets(1_000)] == ["a.v1"]


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "7" * 4_000, "1.5e300"])
def test_a_checkpoint_may_have_any_number(number: str) -> None:
    lines = [f'{{"startCommit":{{"runtimeCheckpoint":{{"at":{at}}}}}}}'.encode() for at in (number, "1", number)]
    messages = [decode_request(line) for line in lines]
    digests = [message.digest_checkpoint() for message in messages if isinstance(message, request.StartCommit)]
    assert digests[0] == digests[2] != digests[1]
    assert digests[1] == sha256(b'{"at":1}').hexdigest()[:16]
