"""What a binding asks for, beside its columns, that decides how its table may change. Validate and apply both read it
here."""

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from connector.config.resource_config import ResourceConfig
from connector.config.values import RETAIN_EXISTING_DATA, SchemaEvolution
from connector.evolution.arrangement_terms import ArrangementTerms
from protocol.flow import MaterializationBinding

NO_TERMS: Final = ArrangementTerms()


class IdentifierFields(StrEnum):
    """What the identifier fields become, if the task has created the table."""

    KEY = "the key"  # of standard updates: the table has one row for each key
    NONE = "none"  # since delta updates have taken the place of standard updates
    KEPT = "kept"  # of delta updates: they are somebody else's, or there are none


@dataclass(frozen=True)
class BindingSettings:
    """How a binding wants its table to be, beside its columns, and which changes it allows."""

    schema_evolution: SchemaEvolution = SchemaEvolution.FULL
    arrangement: ArrangementTerms = NO_TERMS
    identifier_fields: IdentifierFields = IdentifierFields.KEPT
    retains_rows: bool = False  # in a backfill, for a feature flag

    @classmethod
    def of(
        cls, resource: ResourceConfig, last: MaterializationBinding | None, flags: Container[str]
    ) -> "BindingSettings":
        """Return the settings of a resource config. `last` is its binding when it was last applied."""
        return cls(
            resource.schema_evolution,
            ArrangementTerms(resource.partition_terms, resource.sort_by),
            _choose_identifier_fields(resource, last),
            RETAIN_EXISTING_DATA in flags,
        )


DEFAULT_SETTINGS: Final = BindingSettings()


def _choose_identifier_fields(resource: ResourceConfig, last: MaterializationBinding | None) -> IdentifierFields:
    if not resource.delta_updates:
        return IdentifierFields.KEY
    return IdentifierFields.NONE if last and not last.delta_updates else IdentifierFields.KEPT
