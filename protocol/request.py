"""What the runtime asks, in the order of the conversation."""

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from protocol.flow import Collection, Json, Materialization, Range, ValidateBinding


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """Describe the connector: its config schemas."""

    connector_type: str = ""
    config: Json = None


class Validate(msgspec.Struct, frozen=True, rename="camel"):
    """Check a config and its bindings, and say how each field may be materialized."""

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
    """Begin a session of transactions over one shard's key range."""

    materialization: Materialization = Materialization()
    version: str = ""
    range: Range | None = None
    state: Json = None


class Acknowledge(msgspec.Struct, frozen=True, rename="camel"):
    """The previous transaction has been committed to the runtime's log: make it visible."""

    state_patches: tuple[Json, ...] = ()


class Load(msgspec.Struct, frozen=True, rename="camel"):
    """Look a key up. Never sent for delta-updates bindings."""

    binding: int = 0


class Flush(msgspec.Struct, frozen=True, rename="camel"):
    """There are no more loads."""

    state_patches: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """A run of consecutive Store lines that are taken to be of one binding, undecoded.

    `binding` is a guess from the first line: whoever decodes the lines checks it on each of them.
    `pieces` are the run's bytes in order; every line is whole, ends in a newline, and may span two pieces.
    """

    binding: int
    first_line: int
    count: int
    pieces: tuple[bytes | memoryview, ...]

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces)


class StartCommit(msgspec.Struct, frozen=True, rename="camel"):
    """There are no more stores: stage them durably."""

    runtime_checkpoint: Json = None
    state_patches: tuple[Json, ...] = ()


Request: TypeAlias = Spec | Validate | Apply | Open | Acknowledge | Load | Flush | Store | StartCommit
