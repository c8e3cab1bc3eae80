"""The engine of a session: Spark with its limits and directories, and the server that its tasks claim blocks from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connector.host.cgroup import Cgroup
from connector.host.errors import UserError
from connector.host.tempdirs import TemporaryDirectories, make_directories
from connector.spark.claims import ClaimServer
from connector.spark.cluster import BIND_ADDRESS, DRIVER_HOST, claims_address, driver_host, is_local
from connector.spark.limits import Limits
from connector.spark.spark_session import Spark


@dataclass(frozen=True)
class Engine:
    """Spark with a session's directories, and how large a spool may grow there."""

    spark: Spark
    directories: TemporaryDirectories
    spool_limit: int  # bytes


@contextmanager
def start_engine(settings: Mapping[str, str]) -> Iterator[Engine]:
    """Yield Spark while it is being started. Spark is killed when the block ends."""
    with make_directories() as directories:
        share = Limits.of(Cgroup(), directories.files)
        spark = Spark({"spark.master": f"local[{share.tasks}]", **settings}, directories)
        try:
            yield Engine(spark, directories, share.spool)
        finally:
            spark.kill()


def claim_server(settings: Mapping[str, str], socket: Path) -> ClaimServer:
    """Return a server that Spark's tasks can reach: at the socket, or on the network if they run on a cluster.

    Raises UserError if this process cannot listen there.
    """
    if is_local(settings):
        return ClaimServer(str(socket))
    address = claims_address(settings)
    try:
        return ClaimServer(address, driver_host(settings))
    except OSError as error:
        raise UserError(
            f"Spark's tasks cannot be listened for at {address[0]}:{address[1]} ({error}). Set {DRIVER_HOST} in "
            f"/advanced/spark to an address of this machine that the cluster reaches, or {BIND_ADDRESS} where it has "
            "another name here."
        ) from error
