"""What a probe writes where data files will be, to see whether it may: it is known by its name."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

CONTENT: Final = b"Written by materialize-iceberg, to see whether it may. Nobody needs it: it may be deleted.\n"
NAME_PREFIX: Final = "materialize-iceberg-probe-"
LONGEST_PROBE: Final = timedelta(hours=1)


def new_name() -> str:
    return f"{NAME_PREFIX}{uuid.uuid4().hex}"


def is_abandoned(name: str, modified: datetime) -> bool:
    """Whether a file is a probe's that was killed before it could delete it."""
    return (
        re.fullmatch(f"{NAME_PREFIX}[0-9a-f]{{32}}", name) is not None and datetime.now(UTC) - modified > LONGEST_PROBE
    )
