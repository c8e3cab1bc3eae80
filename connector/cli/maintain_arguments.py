"""The arguments of `maintain`: its action, its budget, and which orphan files it deletes."""

import argparse
import math
from datetime import timedelta
from typing import Final

from connector.iceberg.maintenance.actions import OLDER_THAN, Action

ALL: Final = "all"
ACTIONS: Final = (*map(str, Action), ALL)
MOST_DAYS: Final = 36_500  # a hundred years


def add_maintain(maintain: argparse.ArgumentParser) -> None:
    """Add the arguments that only `maintain` has."""
    maintain.add_argument("action", metavar="ACTION", choices=ACTIONS, help=f"one of {', '.join(ACTIONS)}")
    maintain.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    maintain.add_argument("--max-seconds", metavar="N", type=_number, help="begin nothing more after N seconds")
    maintain.add_argument("--max-bytes", metavar="N", type=_whole_number, help="write at most N bytes of files again")
    maintain.add_argument(
        "--rearrange",
        action="store_true",
        help="compact, all: first rewrite data files that have an older partition spec or another sort order than the "
        "table",
    )
    maintain.add_argument(
        "--older-than",
        metavar="DAYS",
        nargs="?",
        type=_number,
        const=OLDER_THAN / timedelta(days=1),
        help="orphans, all: also delete files that the connector does not know and that are older "
        "(default: %(const)g days)",
    )
    maintain.add_argument(
        "--dropped-tables",
        action="store_true",
        help="orphans, all: also delete files of dropped tables, such as those of earlier backfills",
    )
    maintain.add_argument("--allow-young-files", action="store_true", help="allow --older-than less than a day")
    maintain.add_argument(
        "--spark",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a Spark setting for this run, such as master=local[8]; may be repeated",
    )


def check_maintain(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the process with status 2 if arguments do not go together."""
    if options.action not in (Action.ORPHANS, ALL) and (options.older_than is not None or options.dropped_tables):
        parser.error(f"--older-than and --dropped-tables belong to `orphans` and `all`, not to `{options.action}`")
    if options.action not in (Action.COMPACT, ALL) and options.rearrange:
        parser.error(f"--rearrange belongs to `compact` and `all`, not to `{options.action}`")
    if options.older_than is not None and options.older_than < 1 and not options.allow_young_files:
        parser.error(
            "--older-than is less than a day: files that another engine is writing would be deleted. If no engine "
            "writes to the tables, add --allow-young-files"
        )
    if options.older_than is not None and options.older_than > MOST_DAYS:
        parser.error(f"--older-than: {options.older_than:g} is more than {MOST_DAYS} days")
    if wrong := [setting for setting in options.spark if setting.find("=") < 1]:
        parser.error(f"--spark {wrong[0]}: give a name and a value, with = between them")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:  # also not a number
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return number


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 0")
    return int(text)
