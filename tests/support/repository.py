"""Where the files of this repository are."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
TESTS: Final = REPOSITORY / "tests"
