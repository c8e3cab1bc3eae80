"""A ledger of a transaction, and a claim server for its tasks. A module that needs others has its own fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.ledger import Ledger
from connector.spark.blocks.spool import Spool
from spark.served_claims import serving


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Spool(tmp_path / "spool", block_size=1))  # every row may be claimed at once


@pytest.fixture
def claims(tmp_path: Path, ledger: Ledger) -> Iterator[ClaimServer]:
    with serving(tmp_path, ledger) as server:
        yield server
