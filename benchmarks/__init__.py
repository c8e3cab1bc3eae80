"""Benchmarks of the whole connector process. `scripts/bench` runs them, on the servers that the tests run on."""

import sys
from pathlib import Path

# Last: tests/ has directories of the same names as the packages that it tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
