"""Decodes requests and encodes responses. Each line of proto3 JSON is one message."""

import codecs
from functools import cache
from typing import Final, get_args

import msgspec
from msgspec import inspect

from protocol.flow import Json
from protocol.json_parts import MalformedJsonError, mask_surrogates, parse_members, unmask_surrogates
from protocol.protocol_error import ProtocolError
from protocol.request import LineRun, Load, Request, Store
from protocol.response import Loaded, Response


def message_name(message: type) -> str:
    """Return a message's name in JSON: the name of its type in camelCase."""
    return message.__name__[0].lower() + message.__name__[1:]


REQUESTS: Final[dict[str, type[Request]]] = {message_name(message): message for message in get_args(Request)}


class _RunHead(msgspec.Struct, frozen=True):
    """The only field of a Load or a Store that is decoded here."""

    binding: int | None = 0


_BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CUT_OFF: Final = "Input data was truncated"  # as msgspec says it
_NULL: Final = msgspec.Raw(b"null")
_ENVELOPE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_RUN_HEAD: Final = msgspec.json.Decoder(_RunHead, strict=False)
_SHORTEST_MESSAGE: Final = len('"":0,') + min(map(len, REQUESTS))  # bytes that one more message takes on a line


@cache
def _type_infos() -> dict[type[Request], inspect.Type]:
    return {message: inspect.type_info(message) for message in REQUESTS.values() if not issubclass(message, LineRun)}


def decode_request(line: bytes | memoryview) -> Request:
    """Return the request of one line. A Load or a Store stays undecoded: the line is its only piece, with the number 1.

    Raises ProtocolError, which never shows a value: it may be a secret.
    """
    try:
        message, raw = _find_message(_decode_envelope(line))
        if issubclass(message, LineRun):
            return _make_run(message, raw, line)
        # A field that is null gets its default value. Nulls inside uninterpreted JSON keep their meaning.
        fields = _remove_nulls(msgspec.json.decode(raw), _type_infos()[message])
        return msgspec.convert(fields, message, strict=False)
    except _REFUSALS as error:
        raise _translate_error(bytes(line), error) from error


def find_kind(line: bytes) -> type[Request]:
    """Return the type of the message on a line, without decoding the message. Raises ProtocolError."""
    try:
        message, _ = _find_message(_decode_envelope(line))
    except _REFUSALS as error:
        raise _translate_error(line, error) from error
    return message


def _translate_error(line: bytes, refusal: Exception) -> ProtocolError:
    match refusal:
        case _ if line.startswith(_BYTE_ORDER_MARKS):
            return ProtocolError("begins with a byte order mark (BOM): save the text as UTF-8 without one")
        case UnicodeDecodeError():
            return ProtocolError("not valid UTF-8")
        case RecursionError():
            return ProtocolError("nested too deeply")
        case msgspec.ValidationError():
            return ProtocolError(f"not a valid request: {refusal}")
        case _ if not line.strip():
            return ProtocolError("the line is empty: expected a message")
        case _ if _is_complete(line):  # msgspec says of such a string that the line ends in it
            return ProtocolError("a string has half of a surrogate pair, which is no character")
        case _ if _is_cut_off(line.rstrip()):
            return ProtocolError(f"the line ends within its JSON, after {len(line.rstrip())} bytes")
        case _:
            return ProtocolError(f"not a JSON object: {refusal}")


def _is_cut_off(line: bytes) -> bool:
    try:
        _ENVELOPE.decode(line)
    except _REFUSALS as refusal:
        return str(refusal) == _CUT_OFF
    return False


def _is_complete(line: bytes) -> bool:
    try:
        parse_members(line)
    except MalformedJsonError:
        return False
    return True


def encode_response(response: Response) -> bytes | memoryview:
    """Return one line with its newline, or a part of several lines."""
    if isinstance(response, Loaded):
        return response.text
    return msgspec.json.encode({message_name(type(response)): response}) + b"\n"


def _decode_envelope(line: bytes | memoryview) -> dict[str, msgspec.Raw]:
    """Return the members of a line by name. Raises ProtocolError if a message occurs twice."""
    try:
        envelope = _ENVELOPE.decode(line)
    except (msgspec.DecodeError, RecursionError) as refusal:
        named = _parse_refused(line, refusal)
    else:
        if not _has_room_for_a_message(line, envelope):
            return envelope
        named = parse_members(bytes(line))
    names = [name for name, _ in named]
    for name in REQUESTS:
        if names.count(name) > 1:
            raise ProtocolError(f"the message {name} occurs {names.count(name)} times: expected one")
    return {name: msgspec.Raw(value) for name, value in named}


def _has_room_for_a_message(line: bytes | memoryview, envelope: dict[str, msgspec.Raw]) -> bool:
    """Whether the line may have a message that `envelope` lacks: of members with one name, msgspec keeps the last."""
    seen = 1 + sum(len('"":,') + len(name) + len(value) for name, value in envelope.items())
    return len(line) - seen >= _SHORTEST_MESSAGE


def _parse_refused(text: bytes | memoryview, refusal: Exception) -> list[tuple[str, bytes]]:
    """Return the members of an object that msgspec refused. Raises that refusal if the text is not JSON."""
    content = bytes(text)
    try:
        return _parse_masked(content) or parse_members(content)
    except MalformedJsonError:
        raise refusal from None


def _parse_masked(text: bytes) -> list[tuple[str, bytes]]:
    """Return the members of an object with halves of surrogate pairs. There are none if msgspec refuses something
    else, or if it may have dropped a message."""
    masked = mask_surrogates(text)
    if masked is None:
        return []
    try:
        members = _ENVELOPE.decode(masked)
    except _REFUSALS:
        return []
    if _has_room_for_a_message(masked, members):
        return []
    return [(name, unmask_surrogates(bytes(value))) for name, value in members.items()]


def _find_message(envelope: dict[str, msgspec.Raw]) -> tuple[type[Request], msgspec.Raw]:
    names = [name for name, raw in envelope.items() if name in REQUESTS and raw != _NULL]
    match names:
        case [name]:
            return REQUESTS[name], envelope[name]
        case []:
            raise ProtocolError(f"no message: expected one of {', '.join(REQUESTS)}")
        case _:
            raise ProtocolError(f"several messages, {' and '.join(names)}: expected one")


def _make_run(message: type[Load | Store], raw: msgspec.Raw, line: bytes | memoryview) -> Load | Store:
    piece = line if line[-1:] == b"\n" else bytes(line) + b"\n"
    return message(_decode_run_head(raw).binding or 0, first_line=1, count=1, pieces=(piece,))


def _decode_run_head(raw: msgspec.Raw) -> _RunHead:
    try:
        return _RUN_HEAD.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError) as refusal:
        # Some value is invalid. Only `binding` matters here. The code that decodes the line reports the value.
        binding = dict(_parse_refused(raw, refusal)).get("binding", b"0")
        return _RUN_HEAD.decode(b'{"binding":%b}' % binding)


def _remove_nulls(value: Json, expected: inspect.Type) -> Json:
    match expected, value:
        case inspect.StructType(fields=fields), dict():
            return {
                field.encode_name: _remove_nulls(present, field.type)
                for field in fields
                if (present := value.get(field.encode_name)) is not None
            }
        case inspect.VarTupleType(item_type=item_type), list():
            return [_remove_nulls(item, item_type) for item in value]
        case inspect.UnionType(types=(message, inspect.NoneType())), _:
            return _remove_nulls(value, message)
        case _:
            return value
