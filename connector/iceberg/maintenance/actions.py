"""The actions of `maintain`. The command line reads them, so nothing is imported here that is slow."""

from datetime import timedelta
from enum import StrEnum
from typing import Final


class Action(StrEnum):
    """What can be done to a table. `all` does all of it, in this order: each leaves work for the ones after it."""

    COMPACT = "compact"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    ORPHANS = "orphans"


REWRITING: Final = frozenset({Action.COMPACT, Action.MANIFESTS})  # write files again, as far as a budget allows

OLDER_THAN: Final = timedelta(days=3)  # of orphan files that are deleted; as in Iceberg's remove_orphan_files
