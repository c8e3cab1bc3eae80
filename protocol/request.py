"""The requests that the runtime sends, in the order of a session."""

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from protocol.flow import Collection, Json, Materialization, Range, ValidateBinding


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """Return the schemas of the endpoint config and of the resource config."""

    connector_type: str = ""
    config: Json = None


class Validate(msgspec.Struct, frozen=True, rename="camel"):
    """Check a config and its bindings, and return a constraint for each field."""

    name: str = ""
    connector_type: str = ""
    config: Json = None
    bindings: tuple[ValidateBinding, ...] = ()
    last_materialization: Materialization | None = None
    last_version: str = ""
    linked_collections: tuple[Collection, ...] = ()


class Apply(msgspec.Struct, frozen=True, rename="camel"):
    """Make the tables fit the bindings."""

    materialization: Materialization = Materialization()
    version: str = ""
    last_materialization: Materialization | None = None
    last_version: str = ""
    state: Json = None


class Open(msgspec.Struct, frozen=True, rename="camel"):
    """Begin a session for the key range of one shard."""

    materialization: Materialization = Materialization()
    version: str = ""
    range: Range | None = None
    state: Json = None


class Acknowledge(msgspec.Struct, frozen=True, rename="camel"):
    """The runtime's log has the previous transaction: commit it to the tables."""

    state_patches: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class LineRun:
    """A run of consecutive lines with one kind of message, undecoded. They probably belong to one binding.

    `binding` is a guess from the first line. The code that decodes the lines checks it for each of them.
    `pieces` are the run's bytes in order. Every line is complete and ends in a newline; it may span two pieces.
    """

    binding: int
    first_line: int
    count: int
    pieces: tuple[bytes | memoryview, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(len(piece) for piece in self.pieces)


class Load(LineRun):
    """Return the documents of keys. The runtime sends none for bindings with delta updates."""

    __slots__ = ()


class Flush(msgspec.Struct, frozen=True, rename="camel"):
    """This transaction has no more loads."""

    state_patches: tuple[Json, ...] = ()


class Store(LineRun):
    """Store documents."""

    __slots__ = ()


class StartCommit(msgspec.Struct, frozen=True, rename="camel"):
    """This transaction has no more stores: make them durable."""

    runtime_checkpoint: Json = None
    state_patches: tuple[Json, ...] = ()


Request: TypeAlias = Spec | Validate | Apply | Open | Acknowledge | Load | Flush | Store | StartCommit
