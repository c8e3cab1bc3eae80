"""Arguments that several commands have: which task, which tables, and the form of the output."""

import argparse
from typing import Any


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the file that the task is read from, and its name."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", help="file with the endpoint config, YAML or JSON; - reads stdin")
    add_flow(source)
    parser.add_argument("--task", metavar="NAME", help="with --flow: the task's name, if the file defines several")


def add_flow(parser: argparse._ActionsContainer) -> None:
    """Add the Flow specification."""
    parser.add_argument("--flow", metavar="FILE", help="Flow specification (flow.yaml) that defines the task")


def add_state(parser: argparse.ArgumentParser, text: str, *, is_required: bool = False) -> None:
    """Add the file with the connector state."""
    parser.add_argument("--state", metavar="FILE", required=is_required, help=text)


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON", *, default: Any = argparse.SUPPRESS) -> None:
    """Add --json. A command has no default of its own: it would replace a --json that stands before the command."""
    parser.add_argument("--json", action="store_true", default=default, help=text)


def add_tables(parser: argparse.ArgumentParser) -> None:
    """Add the names of tables."""
    parser.add_argument(
        "--table",
        metavar="NAMESPACE.TABLE",
        action="append",
        default=[],
        help="a table; may be repeated. Without it: all tables that the connector has created in the namespace",
    )
