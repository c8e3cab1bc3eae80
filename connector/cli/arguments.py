"""The arguments of the command line, and the files that they name. Loads little: `spec` and `--help` answer at once."""

import argparse
import sys
from pathlib import Path
from typing import Final

from connector import VERSION
from connector.host.errors import UserError
from protocol.flow import WHOLE_RANGE, Json

CONFIG_HELP: Final = "file with the endpoint config; - reads stdin"


def read_json(file: str) -> Json:
    """Read a JSON file; - reads stdin. Raises UserError if that fails."""
    import orjson  # it takes 30 ms to load, which `spec` need not wait for

    if file == "-" and sys.stdin is None:
        raise UserError("stdin must be open: the argument - says that a file's contents come from it.")
    try:
        return orjson.loads(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{file} is not JSON: {error}.") from error


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands, with their help."""
    parser = argparse.ArgumentParser(
        prog="materialize-iceberg",
        description="Materializes Flow collections into Apache Iceberg tables. Without a command it speaks Flow's "
        "materialization protocol: JSON lines on stdin and stdout. Logs go to stderr.",
        epilog="Environment: LOG_FORMAT (json or text), LOG_LEVEL (debug, info, warn, error), "
        "FLOW_RUNTIME_CODEC (json).",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("spec", help="print the spec response: the schemas of the configs")
    check = commands.add_parser(
        "check",
        help="check that a config works on this machine",
        description="Checks the endpoint config, its catalog and its storage, and what this machine needs: Java, Spark "
        "and disk space. Prints each step. The exit status is 1 if a step fails.",
    )
    check.add_argument("--config", required=True, help=CONFIG_HELP)
    check.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser(
        "plan",
        help="print what an apply request would change, without changing anything",
        description="Reads requests from stdin, JSON lines as the runtime sends them. Prints what the first apply "
        "request would change, one line for each action, like actionDescription in the apply response.",
    )
    _add_demo(commands.add_parser("demo", help="materialize sample documents, or your own, and show the table"))
    _add_fence(
        commands.add_parser("fence", help="show or reset a table's fence, which keeps replaced tasks from committing")
    )
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Materializes documents into a table of an embedded catalog, which is a directory. Shows the conversation, the "
        "table, and how to open it. Infers the collection's schema from the documents. Needs no config."
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.jsonl",
        help="documents, one JSON object in each line; - reads stdin (default: four sample orders)",
    )
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        help="the field or JSON pointer that identifies a document: id, /id, customer/id; repeat it for several",
    )
    parser.add_argument(
        "--into",
        metavar="DIRECTORY",
        help="the warehouse directory; if it has the table already, the documents are added to it (default: warehouse, "
        "or a new temporary directory if the current directory cannot be written to)",
    )


def _add_fence(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="list a table's writers, and what happens to the commits that a state names")
    _add_table(show, needs_state=False)
    show.add_argument("--json", action="store_true", help="print JSON")
    reset = actions.add_parser(
        "reset",
        help="let a task continue that is fenced or whose staged files are gone; prints the consequences, and changes "
        "nothing without --yes",
    )
    _add_table(reset, needs_state=True)
    reset.add_argument("--state-key", required=True, help="the binding's state key, as `fence show` prints it")
    reset.add_argument("--key-range", default=WHOLE_RANGE.key_range, help="default: %(default)s")
    reset.add_argument(
        "--staged",
        choices=("add", "skip"),
        required=True,
        help="add the staged rows to the table, or skip them as if they were committed",
    )
    reset.add_argument("--reason", required=True, help="why; it is recorded in the table")
    reset.add_argument("--yes", action="store_true", help="reset the fence")


def _add_table(parser: argparse.ArgumentParser, *, needs_state: bool) -> None:
    parser.add_argument("--config", required=True, help=CONFIG_HELP)
    parser.add_argument("--table", required=True, help="the table, as namespace.table")
    parser.add_argument("--materialization", required=needs_state, help="the task's name")
    parser.add_argument("--state", required=needs_state, help="file with the task's connector state; - reads stdin")
