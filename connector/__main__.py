"""The command: without an argument it speaks the protocol on stdin and stdout."""

import argparse
import logging
import os
import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial

from connector import VERSION
from connector.host import logs, signals
from connector.host.errors import ConnectorError, UserError
from connector.host.redaction import redact
from connector.rpc import spec
from protocol import stdio
from protocol.flow import WHOLE_RANGE
from protocol.protocol_error import ProtocolError

log = logging.getLogger("connector")

CONFIG_HELP = "a file with the endpoint config; - for stdin"

FAILED = 1
BROKEN = 70  # EX_SOFTWARE: our fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    stdio.ensure_stderr()
    options = _parser().parse_args(arguments)
    match options.command:
        case "spec":
            return _run_to_exit_status(lambda: _show(spec.describe()))
        case "fence":
            return _run_to_exit_status(partial(_fence, options))
        case "plan":
            return _run_to_exit_status(_plan)
        case "check":
            return _run_to_exit_status(partial(_check, options))
        case _:
            return _run_to_exit_status(_serve)


def _run_to_exit_status(work: Callable[[], int | None]) -> int:
    """Do the work; an error becomes one log record and the exit status."""
    # The core of a process that crashes would have its secrets: Spark's processes inherit this.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        logs.configure()
        return work() or 0
    except signals.Stopped as stopped:
        return stopped.exit_status
    except (ConnectorError, ProtocolError) as error:
        log.error("%s", error)
        return FAILED
    except Exception as error:
        log.debug("the traceback of what follows", exc_info=True)
        log.error("Internal error: %s: %s. Run with LOG_LEVEL=debug for a traceback.", type(error).__name__, error)
        return BROKEN


def _serve() -> None:
    # A descriptor that is closed would be the next file's that is opened, and get the answers.
    if sys.stdin is None or sys.stdout is None:
        raise UserError("stdin and stdout must be open: requests come from the one, and answers go to the other.")
    wire = stdio.claim_stdout()
    _check_codec()
    signals.install(wire)
    if sys.stdin.isatty():
        log.info("this terminal is read for requests of Flow's protocol, JSON lines; --help lists the commands")
    # Before PyArrow is loaded: it takes ten megabytes for each small file that it writes to S3, and its own allocator
    # would keep them.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    from connector import driver

    driver.serve(stdio.RequestReader(sys.stdin.fileno()), wire)


def _plan() -> None:
    if sys.stdin is None:
        raise UserError("stdin must be open: the requests are read from it.")
    from connector.cli import plan_command as plan_command

    _show(plan_command.plan(stdio.RequestReader(sys.stdin.fileno())))


def _check(options: argparse.Namespace) -> int:
    from connector.cli import check_command as check_command

    passed = check_command.check(options.config, _show, as_json=options.json)
    return 0 if passed else FAILED


def _fence(options: argparse.Namespace) -> None:
    from connector.cli import fence_command as fence_command
    from connector.iceberg.commits.reset import Decision

    place = fence_command.Place(options.config, options.table, options.materialization, options.state)
    if options.action == "show":
        _show(fence_command.show(place, as_json=options.json))
        return
    decision = Decision(options.staged)
    _show(
        fence_command.reset(
            place, options.state_key, options.key_range, decision, options.reason, is_confirmed=options.yes
        )
    )


def _show(text: str) -> None:
    """Print it; whoever does not get it is not told that all is well."""
    try:
        print(redact(text), flush=True)
    except BrokenPipeError:
        raise signals.Stopped(signals.UNREAD) from None
    except OSError as error:
        raise UserError(f"stdout cannot be written to: {error.strerror}.") from error


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
    check = commands.add_parser(
        "check",
        help="try whether a config can be used on this machine",
        description="Checks an endpoint config, reaches its catalog and its storage, and looks for what this machine "
        "needs, step by step. The exit status is 1 where something fails.",
    )
    check.add_argument("--config", required=True, help=CONFIG_HELP)
    check.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser(
        "plan",
        help="say what an apply request would do, and do nothing",
        description="Reads requests, JSON lines as the runtime sends them, from stdin, and prints what the first apply "
        "request among them would do: a line for each action, those of the apply response's actionDescription.",
    )
    _add_fence(
        commands.add_parser("fence", help="look at, and reset, what a table knows of the tasks that write to it")
    )
    return parser


def _add_fence(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="list a table's writers, and what it makes of a task's state")
    _add_place(show, needs_state=False)
    show.add_argument("--json", action="store_true", help="print JSON")
    reset = actions.add_parser(
        "reset",
        help="let a task go on that is fenced or lacks staged files: says what that costs, does it only with --yes",
    )
    _add_place(reset, needs_state=True)
    reset.add_argument("--state-key", required=True, help="the binding's state key, as `fence show` names it")
    reset.add_argument("--key-range", default=WHOLE_RANGE.key_range, help="default: %(default)s")
    reset.add_argument(
        "--staged",
        choices=("add", "skip"),
        required=True,
        help="whether the rows that the state names as staged are to be added, or count as landed",
    )
    reset.add_argument("--reason", required=True, help="recorded in the table")
    reset.add_argument("--yes", action="store_true", help="do it")


def _add_place(parser: argparse.ArgumentParser, *, needs_state: bool) -> None:
    parser.add_argument("--config", required=True, help=CONFIG_HELP)
    parser.add_argument("--table", required=True, help="namespace.table")
    parser.add_argument("--materialization", required=needs_state, help="the task's name")
    parser.add_argument("--state", required=needs_state, help="a file with the task's connector state")


def run() -> None:
    """Run the command as a process, which ends at once: some thread may still wait for a network that does not
    answer."""
    os._exit(main())


if __name__ == "__main__":
    run()
