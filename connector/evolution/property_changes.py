"""The table properties that new tables get, that a binding may set, and that are set in an existing table."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from connector.config.values import FORMAT_VERSION
from connector.model.properties import Properties

# The connector's own table properties: who created the table, and what is committed to it.
OWN_PREFIX: Final = "flow."
COMPACTION_PROPERTY: Final = "flow.compaction.enabled"
# The properties of new tables. Every commit writes the whole metadata again. It lists all snapshots and older versions,
# so there should be few.
DEFAULT_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    # 128 MiB: a compaction has short tasks, and rewrites little where rows are deleted.
    "write.target-file-size-bytes": "134217728",
    COMPACTION_PROPERTY: "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": "259200000",  # three days: with a commit every five minutes, 1 MB of metadata
    "history.expire.min-snapshots-to-keep": "1",
    "flow.expire.max-snapshots-to-keep": "2000",  # 2 MB of metadata, also with a commit every second
}
# In a table whose catalog refuses identifier fields, so that no later publication or backfill asks for them.
REFUSED_IDENTIFIER_FIELDS: Final = {"flow.identifier-fields": "refused"}
CORRECT_CONFIG: Final = "Correct or remove it in `additional_table_properties` of the binding's config."
_REMOVE: Final = "Remove it from `additional_table_properties` of the binding's config."
_MAINTENANCE: Final = ("flow.compaction.", "flow.expire.")  # which a user may set
NAME_MAPPING: Final = "schema.name-mapping.default"
# Properties that a table gets when it is created, and not again. Its version may be higher by now, and each new column
# is added to its name mapping.
_ONLY_AT_CREATION: Final = frozenset({FORMAT_VERSION, NAME_MAPPING})
# Facts of a table that are kept under these names. AWS Glue and Hive keep the first four beside the table's properties:
# a property `metadata_location` would take the place of the location of the table's metadata.
_FACTS: Final = frozenset(
    {
        "EXTERNAL",
        "metadata_location",
        "previous_metadata_location",
        "table_type",
        "current-schema",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "default-partition-spec",
        "default-sort-order",
        "snapshot-count",
        "uuid",
    }
)


@dataclass(frozen=True)
class SetTableProperties:
    """The table gets the values of the config. It keeps all other properties."""

    properties: Properties
    former: Properties  # the values of these properties before, where they had one

    @property
    def effect(self) -> str:
        noun = "table property" if len(self.properties) == 1 else "table properties"
        return f"set {noun} {', '.join(map(self._describe, self.properties))}"

    def _describe(self, name: str) -> str:
        former = f" (was {self.former[name]!r})" if name in self.former else ""
        return f"{name} = {self.properties[name]!r}{former}"


def find_refused_defaults(defaults: Mapping[str, str], refusal: str) -> set[str]:
    """Find the default properties of a new table that a catalog's refusal names. A table can be without them. It cannot
    be without the connector's own: a catalog that refuses these refuses each commit."""
    named = {name.strip(".") for name in re.findall(r"[\w.-]+", refusal)} & defaults.keys()
    return {name for name in named if not name.startswith(OWN_PREFIX)}


def list_lasting_properties(configured: Mapping[str, str]) -> dict[str, str]:
    """Return the configured properties that a table should still have after it was created."""
    return {name: value for name, value in configured.items() if name not in _ONLY_AT_CREATION}


def find_changed(existing: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Find the configured properties that an existing table does not have, or has with another value."""
    return {name: value for name, value in list_lasting_properties(configured).items() if existing.get(name) != value}


def plan_properties(existing: Mapping[str, str], configured: Mapping[str, str]) -> list[SetTableProperties]:
    """Plan the properties of an existing table that are not as configured. Others stay, also if the config had them
    once: another engine may rely on them."""
    changed = find_changed(existing, configured)
    former = {name: existing[name] for name in changed if name in existing}
    return [SetTableProperties(Properties(changed), Properties(former))] if changed else []


def find_config_problems(configured: Mapping[str, str], format_version: int) -> Iterator[str]:
    """Say which properties a binding may not set, and why."""
    for name, value in configured.items():
        if name.startswith(OWN_PREFIX) and not name.startswith(_MAINTENANCE):
            yield f"table property {name!r}: names that begin with {OWN_PREFIX!r} are the connector's own. {_REMOVE}"
        if name in _FACTS:
            yield (
                f"table property {name!r}: Iceberg and its catalogs keep a fact about the table under this name. "
                f"{_REMOVE}"
            )
        if name == FORMAT_VERSION and value != str(format_version):
            yield (
                f"table property {name!r} is not the value of `format_version`, which decides: remove the property, "
                "and set `format_version` to 2 or 3."
            )
