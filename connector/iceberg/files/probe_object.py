"""What a probe writes where data files will be, to see whether it may: nobody's data, and known by its name."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

CONTENT: Final = b"Written by materialize-iceberg, to see whether it may. Nobody needs it: it may be deleted.\n"
NAMES_BEGIN: Final = "materialize-iceberg-probe-"
LONGEST_PROBE: Final = timedelta(hours=1)


def new_name() -> str:
    return f"{NAMES_BEGIN}{uuid.uuid4().hex}"


def is_abandoned(name: str, modified: datetime) -> bool:
    """Whether a file is a probe's, and of one that was killed before it deleted it."""
    return (
        re.fullmatch(f"{NAMES_BEGIN}[0-9a-f]{{32}}", name) is not None and datetime.now(UTC) - modified > LONGEST_PROBE
    )
