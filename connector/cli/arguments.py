"""The arguments of the command line, with their help. Loads little: `spec` and `--help` answer at once."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeAlias

from connector.cli.config_files import STDIN
from connector.cli.maintain_arguments import add_maintain, check_maintain
from protocol.flow import WHOLE_RANGE

INVALID_CHOICE: Final = re.compile(r"invalid choice: '([^']*)'")

DESCRIPTION: Final = (
    "Materializes Flow collections into Apache Iceberg tables. Without a command it speaks Flow's materialization "
    "protocol: JSON lines on stdin and stdout. Logs go to stderr."
)
EPILOG: Final = """\
examples:
  materialize-iceberg demo
  materialize-iceberg demo orders.jsonl --key order_id
  materialize-iceberg demo orders.jsonl --key order_id --updates
  materialize-iceberg demo orders.jsonl --key order_id --config config.yaml
  materialize-iceberg check --config config.yaml
  materialize-iceberg check --flow flow.yaml --task acme/lake
  materialize-iceberg plan --flow flow.yaml --task acme/lake
  materialize-iceberg inspect --config config.yaml --table shop.orders
  materialize-iceberg maintain all --config config.yaml --dry-run

exit status:
  0     the command did its work, and each check passed
  1     an error: the last line on stderr says what to change; or a check failed
  2     the arguments are wrong
  70    a defect of the connector
  128+n the process was ended by signal n, or nothing reads its output (141)

environment:
  LOG_FORMAT          text (default) or json
  LOG_LEVEL           debug, info (default), warn or error
  FLOW_RUNTIME_CODEC  json: the only encoding of the protocol
  JAVA_HOME           the Java that Spark runs on; without it, the java on the PATH
  TMPDIR              the directory of temporary files

documentation: {documentation}"""


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the command that was meant, and whose help names the documentation."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        if wrong := INVALID_CHOICE.search(message):
            from difflib import get_close_matches

            choices = [str(choice) for action in self._actions for choice in action.choices or ()]
            if meant := get_close_matches(wrong[1], choices, n=1):
                message += f". Did you mean {meant[0]}?"
        super().error(message)

    def format_help(self) -> str:
        from connector.rpc.spec import find_documentation_url

        return super().format_help().replace("{documentation}", find_documentation_url())


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments. Wrong ones end the process with status 2."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    if options.json and not (options.command or options.version):
        parser.error("--json needs a command, or --version")
    if options.command == "maintain":
        check_maintain(parser, options)
    files = (vars(options).get(name) for name in ("config", "flow", "state", "file"))
    if [*files].count(STDIN) > 1:
        parser.error(f"only one of the files can be {STDIN}: stdin can be read once")
    if options.command in ("check", "plan", "inspect", "fence", "maintain") and not options.flow:
        if options.task:
            parser.error("--task needs --flow")
        if options.command == "plan" and options.state:
            parser.error("--state of `plan` needs --flow: a recorded request has its own state")
    return options


def _make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands, with their help."""
    parser = CommandParser(prog="materialize-iceberg", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the versions of the connector and of its parts")
    _add_json(parser, "print JSON, with --version or a command", default=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_add_spec, _add_check, _add_plan, _add_inspect, _add_fence, _add_maintain, _add_demo):
        add(commands)
    return parser


def _add_spec(commands: Commands) -> None:
    spec = commands.add_parser(
        "spec",
        help="print the spec response: the schemas of the configs",
        description="Prints what the connector answers to the runtime's spec request: the JSON schemas of the endpoint "
        "config and of a binding's config, and the address of the documentation. Reads no config.",
    )
    _add_json(spec, "accepted by each command; the spec response is JSON without it, too")


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        "check",
        help="check that a config works on this machine",
        description="Checks the endpoint config, its catalog and its storage, and what this machine needs: Java, "
        "Spark and disk space. With --flow, it also validates the task's bindings. Prints each step. The exit "
        "status is 1 if a step fails.",
    )
    _add_source(check)
    check.add_argument(
        "--write",
        action="store_true",
        help="also check that the catalog refuses wrong commits, with a table that is created and dropped",
    )
    _add_json(check)


def _add_plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="print what an apply request would change, without changing anything",
        description="Prints what apply would change, one line for each action, like actionDescription in the apply "
        "response. With --flow, it makes the request from a Flow specification. Without, it reads requests from "
        "stdin, JSON lines as the runtime sends them, and takes the first apply request.",
    )
    _add_flow(plan)
    plan.add_argument("--task", metavar="NAME", help="the task's name, if the file defines several")
    _add_state(plan, "file with the task's connector state, to plan its staged transactions, too; needs --flow")
    _add_json(plan)


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="show the health of tables, who writes to them, and what is staged",
        description="Shows tables: rows, files, health, snapshots, columns, the last commit, who writes to them, "
        "and what is staged for them. Changes nothing.",
    )
    _add_source(inspect)
    _add_tables(inspect)
    inspect.add_argument("--materialization", metavar="NAME", help="the task's name, if it is not from --flow")
    _add_state(inspect, "file with the task's connector state, to show what is staged; - reads stdin")
    _add_json(inspect)


def _add_fence(commands: Commands) -> None:
    fence = commands.add_parser(
        "fence",
        help="show or reset a table's fence, which keeps replaced tasks from committing",
        description="Shows or resets the fence of a table. A fence is a value in the table's properties that each "
        "commit of a task checks and replaces, so that a replaced process cannot commit. A reset lets a task continue "
        "that was fenced by mistake, for example because its state was restored from an older copy.",
    )
    actions = fence.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="list a table's writers, and what happens to the commits that a state names",
        description="Lists the writers of a table, each with its fence value and its last commit. With --state, says "
        "for each staged commit if it is committed, will be committed when the task opens, cannot be committed, or is "
        "fenced. Changes nothing.",
    )
    _add_place(show, needs_state=False)
    reset = actions.add_parser(
        "reset",
        help="let a task continue that is fenced or cannot commit staged files; prints the consequences, and changes "
        "nothing without --yes",
        description="Lets a task continue that is fenced or cannot commit staged files. First run `fence show`, and "
        "stop all processes of the task. Without --yes, prints the consequences and changes nothing.",
    )
    _add_place(reset, needs_state=True)
    reset.add_argument("--state-key", required=True, help="the binding's state key, as `fence show` prints it")
    reset.add_argument("--key-range", default=WHOLE_RANGE.key_range, help="default: %(default)s")
    reset.add_argument(
        "--staged",
        choices=("add", "skip"),
        required=True,
        help="add the staged rows to the table, or skip them as if they were committed",
    )
    reset.add_argument("--reason", required=True, help="why; it is recorded in the table")
    reset.add_argument("--yes", action="store_true", help="reset the fence; without it, only print the consequences")


def _add_maintain(commands: Commands) -> None:
    maintain = commands.add_parser(
        "maintain",
        help="compact data files, merge manifests, expire snapshots and delete orphan files of tables, now",
        description="Performs maintenance on tables, also beside running tasks. compact merges small data files, "
        "and removes deleted rows. manifests merges small manifests. expire removes old snapshots, and the files "
        "that only they need. orphans deletes files that nothing refers to. all does all of this, in this order. "
        "A run may be ended at any time, and repeated.",
    )
    _add_source(maintain)
    _add_tables(maintain)
    add_maintain(maintain)
    _add_json(maintain)


def _add_tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        metavar="NAMESPACE.TABLE",
        action="append",
        default=[],
        help="a table; may be repeated. Without it: all tables that the connector has created in the namespace",
    )


def _add_place(parser: argparse.ArgumentParser, *, needs_state: bool) -> None:
    _add_source(parser)
    parser.add_argument("--table", required=True, help="the table, as namespace.table")
    parser.add_argument("--materialization", metavar="NAME", help="the task's name, if it is not from --flow")
    _add_state(parser, "file with the task's connector state; - reads stdin", is_required=needs_state)
    _add_json(parser)


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="materialize sample documents, or your own, and show the table",
        description="Materializes documents into a table of an embedded catalog, which is a directory, or of the "
        "catalog of a config. Shows the conversation, the table, and how to open it. Infers the collection's schema "
        "from the documents.",
    )
    demo.add_argument(
        "file",
        nargs="?",
        metavar="FILE.jsonl",
        help="documents, one JSON object in each line; - reads stdin (default: four sample orders)",
    )
    demo.add_argument(
        "--key",
        action="append",
        default=[],
        help="the field or JSON pointer that identifies a document: id, /id, customer/id; repeat it for several",
    )
    place = demo.add_mutually_exclusive_group()
    place.add_argument("--config", metavar="FILE", help="file with an endpoint config, YAML or JSON; - reads stdin")
    place.add_argument(
        "--into",
        metavar="DIRECTORY",
        help="the warehouse directory; if it has the table already, the documents are added to it (default: warehouse, "
        "or a new temporary directory if the current directory cannot be written to)",
    )
    demo.add_argument(
        "--updates",
        action="store_true",
        help="keep one row for each key: a document replaces the row of its key (without it, each document is a row)",
    )
    _add_json(demo, "print JSON: what was done, without the conversation")


def _add_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", help="file with the endpoint config, YAML or JSON; - reads stdin")
    _add_flow(source)
    parser.add_argument("--task", metavar="NAME", help="with --flow: the task's name, if the file defines several")


def _add_flow(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--flow", metavar="FILE", help="Flow specification (flow.yaml) that defines the task")


def _add_state(parser: argparse.ArgumentParser, text: str, *, is_required: bool = False) -> None:
    parser.add_argument("--state", metavar="FILE", required=is_required, help=text)


def _add_json(parser: argparse.ArgumentParser, text: str = "print JSON", *, default: Any = argparse.SUPPRESS) -> None:
    # A subparser's default would replace what stands before the command.
    parser.add_argument("--json", action="store_true", default=default, help=text)
