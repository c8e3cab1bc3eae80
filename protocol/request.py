"""The requests that the runtime sends, in the order of a session."""

import json
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from protocol.flow import WHOLE_RANGE, Collection, Json, Materialization, Range, ValidateBinding

OFFSET: Final = re.compile("[0-9]{1,18}")  # of a checkpoint: 64-bit integers may be strings


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

    @property
    def shard_range(self) -> Range:
        """The range of the shard. A task that has one shard may leave it out."""
        return self.range or WHOLE_RANGE


class Acknowledge(msgspec.Struct, frozen=True, rename="camel"):
    """The runtime's log has the previous transaction: commit it to the tables."""

    state_patches: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class LineRun:
    """A run of consecutive lines with one kind of message, undecoded. Stores probably belong to one binding.

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
    """Return the documents of keys. The runtime sends none for bindings with delta updates.

    A run may have Loads of several bindings. `binding` is that of the first.
    """

    __slots__ = ()


class BackfillComplete(msgspec.Struct, frozen=True, rename="camel"):
    """A capture has read its source again, and its new documents were read up to here.

    Documents that were published before `timestamp` are outdated. This says nothing of the backfill of the binding, and
    the collection may have more documents.
    """

    binding: int = 0
    timestamp: str = ""


class Flush(msgspec.Struct, frozen=True, rename="camel"):
    """This transaction has no more loads."""

    state_patches: tuple[Json, ...] = ()
    backfill_completes: tuple[BackfillComplete, ...] = ()


class Store(LineRun):
    """Store documents."""

    __slots__ = ()


class StartCommit(msgspec.Struct, frozen=True, rename="camel"):
    """This transaction has no more stores: make them durable."""

    runtime_checkpoint: Json = None
    state_patches: tuple[Json, ...] = ()

    def digest_checkpoint(self) -> str:
        """Return a short digest of the checkpoint, by which people tell checkpoints apart."""
        import hashlib  # `spec` does not need it

        # msgspec and orjson cannot encode integers of more than 64 bits.
        text = json.dumps(self.runtime_checkpoint, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe_offsets(self, longest: int) -> dict[str, str]:
        """Return how far the journals of each binding's collection were read: by state key, a JSON object.

        The checkpoint names a source as `journal;suffix`, and the suffix ends with the state key. Other sources, a
        checkpoint of another form, and objects that are longer than so many characters are left out.
        """
        sources = self.runtime_checkpoint.get("sources") if isinstance(self.runtime_checkpoint, dict) else None
        offsets: dict[str, dict[str, int]] = {}
        for source, read in sorted(sources.items()) if isinstance(sources, dict) else ():
            journal, _, suffix = source.partition(";")
            through = read.get("readThrough", 0) if isinstance(read, dict) else None
            if suffix and isinstance(through, int | str) and OFFSET.fullmatch(str(through)):
                offsets.setdefault(suffix.rpartition("/")[2], {})[journal] = int(through)
        texts = {state_key: msgspec.json.encode(journals).decode() for state_key, journals in offsets.items()}
        return {state_key: text for state_key, text in texts.items() if len(text) <= longest}


Request: TypeAlias = Spec | Validate | Apply | Open | Acknowledge | Load | Flush | Store | StartCommit
