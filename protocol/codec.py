"""One line, one message: proto3 JSON in, proto3 JSON out."""

from typing import Final, get_args

import msgspec
from msgspec import inspect

from protocol import request
from protocol.errors import ProtocolError
from protocol.flow import Json
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
_STORE_HEAD: Final = msgspec.json.Decoder(_StoreHead, strict=False)


def decode_request(line: bytes | memoryview) -> Request:
    """A Store stays undecoded: the line is its only piece, and is counted as line 1.

    Errors never show a value: it may be a secret.
    """
    try:
        message, raw = _only_message(_ENVELOPE.decode(line))
        if message is request.Store:
            return _store(raw, line)
        # A field that is null has its default, but nulls inside opaque JSON have a meaning.
        fields = _without_nulls(msgspec.json.decode(raw), _TYPE_INFO[message])
        return msgspec.convert(fields, message, strict=False)
    except UnicodeDecodeError as error:
        raise ProtocolError("not valid UTF-8") from error
    except RecursionError as error:
        raise ProtocolError("nested too deeply") from error
    except msgspec.ValidationError as error:
        raise ProtocolError(f"not a valid request: {error}") from error
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not a JSON object: {error}") from error


def encode_response(response: Response) -> bytes:
    """One line, its newline included."""
    return msgspec.json.encode({message_name(type(response)): response}) + b"\n"


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
    return request.Store(_STORE_HEAD.decode(raw).binding or 0, first_line=1, count=1, pieces=(piece,))


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
