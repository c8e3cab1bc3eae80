"""The responses that the connector sends, in the order of a session."""

from typing import TypeAlias

import msgspec

from protocol.flow import ConnectorState, Constraint, Json, ProjectionConstraint


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The schemas of the connector's configs."""

    config_schema: Json
    resource_config_schema: Json
    documentation_url: str
    protocol: int = 3032023


class ValidatedBinding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The constraints of one binding's fields, and the table that it is materialized into.

    The newest runtime reads only `projection_constraints`. Released runtimes read only `constraints`.
    """

    constraints: dict[str, Constraint]
    projection_constraints: tuple[ProjectionConstraint, ...]
    resource_path: tuple[str, ...]
    delta_updates: bool = False
    case_insensitive_fields: bool = False


class Validated(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to Validate: one entry for each binding, in their order."""

    bindings: tuple[ValidatedBinding, ...]


class Applied(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The actions that apply performed, one on each line. `state` is absent if apply did not change it."""

    action_description: str = ""
    state: ConnectorState | None = None


class Opened(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The session is open. Without the load optimization, the runtime sends a Load also for a key that is greater than
    all keys that it has stored."""

    disable_load_optimization: bool = False


class Acknowledged(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The connector has handled the previous transaction: its rows are in the tables, or pending in the state."""

    state: ConnectorState | None = None


class Loaded(msgspec.Struct, frozen=True):
    """The documents of keys that Loads named: a part of the text of finished lines. A line may go on in the next
    part."""

    text: bytes | memoryview


class Flushed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The connector has answered every Load."""

    state: ConnectorState | None = None


class StartedCommit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Every row is durable outside this process. `state` names the files that hold the rows."""

    state: ConnectorState | None = None


Response: TypeAlias = Spec | Validated | Applied | Opened | Acknowledged | Loaded | Flushed | StartedCommit
