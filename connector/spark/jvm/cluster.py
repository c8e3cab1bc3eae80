"""Settings and checks for tasks on other machines, where `spark.master` names a cluster."""

import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from connector.host.errors import RetryableError, UserError
from connector.spark.jvm.jvm_command import WORKER_ALLOCATION, find_package_root
from connector.spark.jvm.jvm_process import Jvm

if TYPE_CHECKING:
    from connector.spark.jvm.client import SparkContext

MASTER: Final = "spark.master"
PARALLELISM: Final = "spark.default.parallelism"  # how many tasks a job has
SPECULATION: Final = "spark.speculation"
DRIVER_HOST: Final = "spark.driver.host"
BIND_ADDRESS: Final = "spark.driver.bindAddress"
# Ours, beside Spark's own spark.driver.port and spark.driver.blockManager.port, for firewalls.
CLAIMS_PORT: Final = "spark.materialize.claims.port"
PYTHON: Final = "spark.pyspark.python"

MAX_PORT: Final = 65_535
MASTER_TIMEOUT: Final = 10.0  # seconds for each of the masters
EXECUTOR_TIMEOUT: Final = 120.0  # seconds: a worker may have to load its image first

# As Spark accepts them.
_MASTER: Final = re.compile(r"local(\[(\*|[0-9]+)(\s*,\s*[0-9]+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
_STANDALONE: Final = "spark://"
_HOST_AND_PORT: Final = re.compile(r"(?P<host>[^/:\[\]]+|\[[^\]]+\]):(?P<port>[0-9]+)")


def is_local(settings: Mapping[str, str]) -> bool:
    """Return whether tasks run on this machine."""
    return settings.get(MASTER, "local").startswith("local")


def make_cluster_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the default settings that a cluster needs."""
    environment = {"PYTHONPATH": find_package_root(), "PYTHONSAFEPATH": "1", **WORKER_ALLOCATION}
    return {
        DRIVER_HOST: find_driver_host(settings),
        # A lost task may run again: its blocks are given to another task.
        "spark.task.maxFailures": "4",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }


def find_driver_host(settings: Mapping[str, str]) -> str:
    """Return the host at which the cluster reaches this process: as configured, or the address from which this machine
    reaches the master."""
    if host := settings.get(DRIVER_HOST):
        return host
    for address in _masters(settings):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
            unused.connect(address)  # sends nothing
            return str(unused.getsockname()[0])
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def parse_claims_address(settings: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port where this process listens for its tasks. Port 0 is any free port.

    Raises UserError if the port is invalid.
    """
    port = settings.get(CLAIMS_PORT, "0")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise UserError(f"{CLAIMS_PORT} in /advanced/spark is {port!r}, which is no port.")
    return settings.get(BIND_ADDRESS) or find_driver_host(settings), int(port)


def check_master(settings: Mapping[str, str]) -> str:
    """Return a sentence that says where tasks run.

    Raises UserError if a setting does not fit, and RetryableError if no master of a standalone cluster answers: Spark
    itself would try for a minute without saying so.
    """
    tasks = settings.get(PARALLELISM, "1")
    if not re.fullmatch("0*[1-9][0-9]{0,5}", tasks):
        raise UserError(f"{PARALLELISM} in /advanced/spark is {tasks!r}: it must be a whole number from 1 to 999999.")
    if not _MASTER.fullmatch(master := settings.get(MASTER, "local")):
        raise UserError(
            f"{MASTER} in /advanced/spark is {master!r}, which is no master of Spark: write it as local[2] for two "
            "tasks on this machine, spark://host:port, k8s://https://host:port or yarn."
        )
    if is_local(settings):
        return "tasks run on this machine"
    if settings.get(SPECULATION, "false").lower() != "false":
        raise UserError(
            f"{SPECULATION} in /advanced/spark must be false: each block of rows goes to one task, so a second attempt "
            "that Spark begins beside a slow one would get none of them."
        )
    refusals = []
    for host, port in _masters(settings):
        try:
            socket.create_connection((host, port), MASTER_TIMEOUT).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        else:
            own = find_driver_host(settings)
            return f"the master at {host}:{port} can be reached; tasks will find this process at {own}"
    if refusals:
        raise RetryableError(
            f"no Spark master of {settings[MASTER]} can be reached ({'; '.join(refusals)}). Start it, or correct "
            f"{MASTER} in /advanced/spark."
        )
    return f"tasks run on {settings[MASTER]}"


def wait_for_executor(context: "SparkContext", jvm: Jvm) -> None:
    """Return when the cluster has given an executor. Raises RetryableError if it gives none, or ends the
    application."""
    deadline = time.monotonic() + EXECUTOR_TIMEOUT
    scala = context._jsc.sc()
    while scala.isStopped() or scala.getExecutorMemoryStatus().size() == 1:  # that of the driver itself
        if scala.isStopped():
            reason = jvm.read_last_words().rpartition("Reason: ")[2].partition(" | ")[0].rstrip(".")
            raise RetryableError(
                f"the Spark master {context.master} does not run this application: {reason}. Its log and its workers' "
                "say more."
            )
        if time.monotonic() > deadline:
            raise RetryableError(
                f"the Spark master {context.master} has given no executor within {EXECUTOR_TIMEOUT:.0f} s. Check that "
                "its workers have the cores and the memory that spark.* in /advanced/spark asks for."
            )
        time.sleep(0.1)


def _masters(settings: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the addresses of a standalone cluster's masters; none for any other cluster."""
    master = settings[MASTER]
    if not master.startswith(_STANDALONE):
        return []
    found = [_HOST_AND_PORT.fullmatch(address) for address in master.removeprefix(_STANDALONE).split(",")]
    if not all(found):
        raise UserError(f"{MASTER} in /advanced/spark is {master}: write it as {_STANDALONE}host:port.")
    return [(match["host"].strip("[]"), int(match["port"])) for match in found if match]
