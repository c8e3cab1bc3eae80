"""A claim server for a transaction with one table."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pyiceberg.types import LongType

from connector.encoding.parquet.file_options import Destination
from connector.host.errors import RetryableError
from connector.host.refresh import Lease
from connector.model.properties import Properties
from connector.spark.blocks.block_transfer import OnThisMachine
from connector.spark.blocks.claim_server import ClaimServer, SocketAddress
from connector.spark.blocks.ledger import Ledger
from connector.spark.blocks.transaction_files import TableLayout
from connector.spark.jvm.jvm_ends import WORKER_ENDED
from encoding.store_lines import binding, plain
from protocol.request import Store
from support.layouts import fixed


@contextmanager
def serving(
    tmp_path: Path, ledger: Ledger, listening: SocketAddress = "", host: str = "127.0.0.1"
) -> Iterator[ClaimServer]:
    destination = Destination(f"file://{tmp_path}", Properties(), "prefix")
    layout = TableLayout(binding(LongType(), index=0), destination, Lease.until(Properties(), None))
    with closing(ClaimServer(listening or str(tmp_path / "claims"), host)) as server:
        server.begin(ledger, fixed(layout), OnThisMachine(lambda: RetryableError(WORKER_ENDED)))
        yield server


def add_a_row(ledger: Ledger) -> None:
    ledger.add(Store(0, 1, 1, (plain(1, "1"),)))
