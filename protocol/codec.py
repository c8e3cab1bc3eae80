"""One line, one message: proto3 JSON in, proto3 JSON out."""

from typing import Final, get_args

import msgspec
from msgspec import inspect

from protocol import request
from protocol.flow import Json
from protocol.json_parts import MalformedJsonError, members
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response


def message_name(message: type) -> str:
    """A message's name on the wire: its type's name in camelCase."""
    return message.__name__[0].lower() + message.__name__[1:]


REQUESTS: Final[dict[str, type[Request]]] = {message_name(message): message for message in get_args(Request)}


class _StoreHead(msgspec.Struct, frozen=True):
    """The one field of a Store that is read here."""

    binding: int | None = 0


_TYPE_INFO: Final = {
    message: inspect.type_info(message) for message in REQUESTS.values() if message is not request.Store
}
_NULL: Final = msgspec.Raw(b"null")
_ENVELOPE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STORE_HEAD: Final = msgspec.json.Decoder(_StoreHead, strict=False)
_SHORTEST_MESSAGE: Final = len('"":0,') + min(map(len, REQUESTS))  # as a member of the line


def decode_request(line: bytes | memoryview) -> Request:
    """A Store stays undecoded: the line is its only piece, and is counted as line 1.

    Errors never show a value: it may be a secret.
    """
    try:
        message, raw = _only_message(_envelope(line))
        if message is request.Store:
            return _store(raw, line)
        # A field that is null has its default, but nulls inside opaque JSON have a meaning.
        fields = _without_nulls(msgspec.json.decode(raw), _TYPE_INFO[message])
        return msgspec.convert(fields, message, strict=False)
    except _REFUSALS as error:
        raise _translated(error) from error


def kind_of(line: bytes) -> type[Request]:
    """The kind of the only message on a line; the message itself is not decoded. Raises ProtocolError."""
    try:
        message, _ = _only_message(_envelope(line))
    except _REFUSALS as error:
        raise _translated(error) from error
    return message


def _translated(refusal: Exception) -> ProtocolError:
    match refusal:
        case UnicodeDecodeError():
            return ProtocolError("not valid UTF-8")
        case RecursionError():
            return ProtocolError("nested too deeply")
        case msgspec.ValidationError():
            return ProtocolError(f"not a valid request: {refusal}")
        case _:
            return ProtocolError(f"not a JSON object: {refusal}")


def encode_response(response: Response) -> bytes:
    """One line, its newline included."""
    return msgspec.json.encode({message_name(type(response)): response}) + b"\n"


def _envelope(line: bytes | memoryview) -> dict[str, msgspec.Raw]:
    """The members of a line, by their names. Raises ProtocolError if a message is there twice."""
    try:
        envelope = _ENVELOPE.decode(line)
    except (msgspec.DecodeError, RecursionError) as refusal:
        named = _members(line, refusal)
    else:
        if not _may_hide_a_message(line, envelope):
            return envelope
        named = members(bytes(line))
    names = [name for name, _ in named]
    for name in REQUESTS:
        if names.count(name) > 1:
            raise ProtocolError(f"the message {name} is there {names.count(name)} times: expected one")
    return {name: msgspec.Raw(value) for name, value in named}


def _may_hide_a_message(line: bytes | memoryview, envelope: dict[str, msgspec.Raw]) -> bool:
    """Whether the line has room for a message beside these members: msgspec keeps the last of those with one name."""
    seen = 1 + sum(len('"":,') + len(name) + len(value) for name, value in envelope.items())
    return len(line) - seen >= _SHORTEST_MESSAGE


def _members(text: bytes | memoryview, refusal: Exception) -> list[tuple[str, bytes]]:
    """The members of an object that msgspec refuses; raises its refusal if the text is wrong JSON for us too."""
    try:
        return members(bytes(text))
    except MalformedJsonError:
        raise refusal from None


def _only_message(envelope: dict[str, msgspec.Raw]) -> tuple[type[Request], msgspec.Raw]:
    names = [name for name, raw in envelope.items() if name in REQUESTS and raw != _NULL]
    match names:
        case [name]:
            return REQUESTS[name], envelope[name]
        case []:
            raise ProtocolError(f"no message: expected one of {', '.join(REQUESTS)}")
        case _:
            raise ProtocolError(f"several messages, {' and '.join(names)}: expected one")


def _store(raw: msgspec.Raw, line: bytes | memoryview) -> request.Store:
    piece = line if line[-1:] == b"\n" else bytes(line) + b"\n"
    return request.Store(_store_head(raw).binding or 0, first_line=1, count=1, pieces=(piece,))


def _store_head(raw: msgspec.Raw) -> _StoreHead:
    try:
        return _STORE_HEAD.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError) as refusal:
        # A value is wrong: it concerns its field, and the lines of a Store are decoded elsewhere.
        binding = dict(_members(raw, refusal)).get("binding", b"0")
        return _STORE_HEAD.decode(b'{"binding":%b}' % binding)


def _without_nulls(value: Json, expected: inspect.Type) -> Json:
    match expected, value:
        case inspect.StructType(fields=fields), dict():
            return {
                field.encode_name: _without_nulls(present, field.type)
                for field in fields
                if (present := value.get(field.encode_name)) is not None
            }
        case inspect.VarTupleType(item_type=item_type), list():
            return [_without_nulls(item, item_type) for item in value]
        case inspect.UnionType(types=(message, inspect.NoneType())), _:
            return _without_nulls(value, message)
        case _:
            return value
