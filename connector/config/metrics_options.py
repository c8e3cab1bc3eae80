"""Where metrics go: an address for Prometheus to scrape, a file for node-exporter, or both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from connector.config.definition import Definition, Setting

LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65535
# The textfile collector of node-exporter reads no other files.
SUFFIX: Final = ".prom"


@dataclass(frozen=True)
class ListenAddress:
    """An address of this machine, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Parse host:port. Without a host, it is loopback: other machines cannot reach it."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_host = (":" in host) == is_bracketed and not set(host) & set("/[]@ ") and host.isprintable()
    if not (is_host and port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
        raise ValueError(
            f"must be a port from 1 to {MAX_PORT}, or host:port, such as 127.0.0.1:9464. An IPv6 address is in brackets"
        )
    return ListenAddress(host or LOOPBACK, int(port))


def parse_metrics_file(text: str) -> Path:
    """Return the absolute path of a file that node-exporter reads."""
    path = Path(text)
    if not path.is_absolute() or path.suffix != SUFFIX or "\0" in text:
        raise ValueError(
            f"must be an absolute path that ends with {SUFFIX}, such as "
            "/var/lib/node_exporter/textfile/materialize-iceberg-lake.prom"
        )
    return path


class MetricsOptions(Definition, frozen=True):
    """Metrics are off unless an address or a file is set."""

    listen: Annotated[
        ListenAddress | None,
        Setting(
            "Listen Address",
            "The address at which Prometheus scrapes the metrics, such as 127.0.0.1:9464. Without a host, only this "
            "machine can reach it.",
            parse=parse_listen_address,
        ),
    ] = None
    file: Annotated[
        Path | None,
        Setting(
            "File",
            "A file to which the metrics are written every 15 seconds, for the textfile collector of node-exporter. "
            "Its name ends with .prom.",
            parse=parse_metrics_file,
        ),
    ] = None

    @property
    def are_on(self) -> bool:
        """Whether metrics are published at all."""
        return self.listen is not None or self.file is not None
