"""The arguments of `maintain`, and which of them belong together."""

import argparse
from typing import Final

from connector.cli.source_arguments import add_json, add_source, add_tables

MAINTENANCE: Final = ("compact", "manifests", "expire", "orphans", "all")
DAYS: Final = 3.0  # the default of --older-than


def add_maintain(maintain: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    maintain.add_argument("action", metavar="ACTION", choices=MAINTENANCE, help=f"one of {', '.join(MAINTENANCE)}")
    add_source(maintain)
    add_tables(maintain)
    maintain.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    maintain.add_argument("--max-seconds", metavar="N", type=float, help="begin nothing more after this time")
    maintain.add_argument("--max-bytes", metavar="N", type=int, help="write at most so many bytes of files again")
    maintain.add_argument(
        "--older-than",
        metavar="DAYS",
        nargs="?",
        type=float,
        const=DAYS,
        help="orphans: also delete files that the connector does not know and that are older (default: %(const)g days)",
    )
    maintain.add_argument(
        "--dropped-tables",
        action="store_true",
        help="orphans: also delete files of dropped tables, such as those of earlier backfills",
    )
    maintain.add_argument("--allow-young-files", action="store_true", help="allow --older-than less than a day")
    maintain.add_argument(
        "--spark",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a Spark setting for this run, such as master=local[8]; may be repeated",
    )
    add_json(maintain)


def check_maintain(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse arguments that do not belong together. That ends the process with status 2."""
    if options.action not in ("orphans", "all") and (options.older_than is not None or options.dropped_tables):
        parser.error(f"--older-than and --dropped-tables belong to `orphans` and `all`, not to `{options.action}`")
    if options.older_than is not None and options.older_than < 1 and not options.allow_young_files:
        parser.error(
            "--older-than is less than a day: files that another engine is writing would be deleted. If no engine "
            "writes to the tables, add --allow-young-files"
        )
    if wrong := [setting for setting in options.spark if "=" not in setting]:
        parser.error(f"--spark {wrong[0]}: give a name and a value, with = between them")
