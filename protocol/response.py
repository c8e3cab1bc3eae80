"""What the connector answers, in the order of the conversation."""

from typing import TypeAlias

import msgspec

from protocol.flow import ConnectorState, Constraint, Json, ProjectionConstraint


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The connector's description of itself."""

    config_schema: Json
    resource_config_schema: Json
    documentation_url: str
    protocol: int = 3032023


class ValidatedBinding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How each field of one binding may be materialized.

    The newest runtime reads `projection_constraints` alone, released ones read `constraints` alone.
    """

    constraints: dict[str, Constraint]
    projection_constraints: tuple[ProjectionConstraint, ...]
    resource_path: tuple[str, ...]
    delta_updates: bool = False
    case_insensitive_fields: bool = False


class Validated(msgspec.Struct, frozen=True, rename="camel"):
    """The answers to a Validate, binding by binding."""

    bindings: tuple[ValidatedBinding, ...]


class Applied(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was done, a line per action; `state` is absent unless some of it has changed."""

    action_description: str = ""
    state: ConnectorState | None = None


class Opened(msgspec.Struct, frozen=True, rename="camel"):
    """The session is open."""


class Acknowledged(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The previous transaction is visible in the tables."""

    state: ConnectorState | None = None


class Loaded(msgspec.Struct, frozen=True, rename="camel"):
    """A document that a Load asked for."""

    binding: int
    doc: Json


class Flushed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Every Load has been answered."""

    state: ConnectorState | None = None


class StartedCommit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Every row is durable outside this process, and `state` names it."""

    state: ConnectorState | None = None


Response: TypeAlias = Spec | Validated | Applied | Opened | Acknowledged | Loaded | Flushed | StartedCommit
