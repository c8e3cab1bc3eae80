"""The command: without an argument it speaks the protocol on stdin and stdout."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from connector import VERSION, logs, signals, spec
from connector.errors import ConnectorError, UserError
from protocol import stdio
from protocol.errors import ProtocolError

log = logging.getLogger("connector")

FAILED = 1
BROKEN = 70  # EX_SOFTWARE: our fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    command = _parser().parse_args(arguments).command
    if command == "spec":
        print(spec.describe())
        return 0
    return _serve()


def _serve() -> int:
    wire = stdio.claim_stdout()
    try:
        logs.configure()
        _check_codec()
        signals.install(wire)
        from connector import driver

        driver.serve(stdio.RequestReader(sys.stdin.fileno()), wire)
    except signals.Stopped as stopped:
        return stopped.exit_status
    except (ConnectorError, ProtocolError) as error:
        log.error("%s", error)
        return FAILED
    except Exception as error:
        log.debug("the traceback of what follows", exc_info=True)
        log.error("Internal error: %s: %s. Run with LOG_LEVEL=debug for a traceback.", type(error).__name__, error)
        return BROKEN
    return 0


def _check_codec() -> None:
    codec = os.environ.get("FLOW_RUNTIME_CODEC") or "json"
    if codec != "json":
        raise UserError(f"FLOW_RUNTIME_CODEC is {codec!r}; this connector speaks json only.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="materialize-iceberg",
        description="Materializes Flow collections into Apache Iceberg tables. Without a command it speaks Flow's "
        "materialization protocol, JSON lines on stdin and stdout; logs go to stderr.",
        epilog="Environment: LOG_FORMAT (json or text), LOG_LEVEL (debug, info, warn, error), "
        "FLOW_RUNTIME_CODEC (json).",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("spec", help="print the config schemas, as the spec response has them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
