"""Settings and checks for tasks on other machines, where `spark.master` names a cluster."""

import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

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

LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65_535
MASTER_TIMEOUT: Final = 10.0  # seconds for each of the masters
EXECUTOR_TIMEOUT: Final = 120.0  # seconds: a worker may have to load its image first

# As Spark accepts them.
_MASTER: Final = re.compile(r"local(\[(\*|[0-9]+)(\s*,\s*[0-9]+)?\])?|(spark|k8s)://.+|yarn")
_STANDALONE: Final = "spark://"
_HOST_AND_PORT: Final = re.compile(r"(?P<host>[^/:\[\]]+|\[[^\]]+\]):(?P<port>[0-9]+)")


def is_local(settings: Mapping[str, str]) -> bool:
    """Return whether tasks run on this machine."""
    return settings.get(MASTER, "local").startswith("local")


def make_cluster_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the default settings that a cluster needs."""
    environment = {"PYTHONPATH": find_package_root(), "PYTHONSAFEPATH": "1", **WORKER_ALLOCATION}
    return {
        DRIVER_HOST: _add_brackets(find_driver_host(settings)),
        # A lost task may run again: its blocks are given to another task.
        "spark.task.maxFailures": "4",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }


def write_addresses(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the addresses of this process as Spark takes them: those of IPv6 in brackets."""
    own = {name: _add_brackets(settings[name]) for name in (DRIVER_HOST, BIND_ADDRESS) if name in settings}
    return {**settings, **own}


def find_driver_host(settings: Mapping[str, str]) -> str:
    """Return the host at which the cluster reaches this process: as configured, or the address from which this machine
    reaches the master. An IPv6 address has no brackets."""
    if host := settings.get(DRIVER_HOST):
        return host.strip("[]")
    for host, port in _masters(settings):
        for family, address in _resolve(host, port):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as unused:
                unused.connect(address)  # sends nothing
                return str(unused.getsockname()[0])
    own = [str(address[0]) for _, address in _resolve(socket.gethostname(), 0)]
    return next((host for host in own if not ip_address(host).is_loopback), LOOPBACK)


def format_address(host: str, port: int) -> str:
    """Return the host, an IPv6 address in brackets, with the port."""
    return f"{_add_brackets(host)}:{port}"


def parse_claims_address(settings: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port where this process listens for its tasks. Port 0 is any free port.

    Raises UserError if the port is invalid.
    """
    port = settings.get(CLAIMS_PORT, "0")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise UserError(f"{CLAIMS_PORT} in /advanced/spark is {port!r}, which is no port.")
    return settings.get(BIND_ADDRESS, "").strip("[]") or find_driver_host(settings), int(port)


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
    reached = _reach_master(settings) if master.startswith(_STANDALONE) else None
    own = find_driver_host(settings)
    if reached:
        return f"the master at {reached} can be reached; tasks will find this process at {own}"
    if own == LOOPBACK and not settings.get(DRIVER_HOST):
        raise UserError(
            f"tasks of {master} on other machines cannot find this process at {own}, the only known address of this "
            f"machine. Set {DRIVER_HOST} in /advanced/spark to an address that the cluster reaches, or to {own} if all "
            "of it runs on this machine."
        )
    return f"tasks run on {master}; they will find this process at {own}"


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


def _reach_master(settings: Mapping[str, str]) -> str:
    """Return the address of the first master that answers. Raises RetryableError if none does."""
    refusals = []
    for host, port in _masters(settings):
        try:
            socket.create_connection((host, port), MASTER_TIMEOUT).close()
        except OSError as error:
            refusals.append(f"{format_address(host, port)}: {error.strerror or error}")
        else:
            return format_address(host, port)
    raise RetryableError(
        f"no Spark master of {settings[MASTER]} can be reached ({'; '.join(refusals)}). Start it, or correct "
        f"{MASTER} in /advanced/spark."
    )


def _add_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """Return the families and the addresses of a host, those of IPv4 first, as Java does; none if it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return sorted(((family, address) for family, _, _, _, address in found), key=lambda each: each[0])


def _masters(settings: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the addresses of a standalone cluster's masters; none for any other cluster."""
    master = settings[MASTER]
    if not master.startswith(_STANDALONE):
        return []
    found = [_HOST_AND_PORT.fullmatch(address) for address in master.removeprefix(_STANDALONE).split(",")]
    if not all(found):
        raise UserError(f"{MASTER} in /advanced/spark is {master}: write it as {_STANDALONE}host:port.")
    return [(match["host"].strip("[]"), int(match["port"])) for match in found if match]
