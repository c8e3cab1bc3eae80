"""The parser that PyIceberg imports for filters is loaded when a filter is a text, in the driver and in workers."""

import subprocess
import sys

LOADED = "print('pyparsing' in sys.modules)"


def run(*statements: str) -> list[str]:
    """What a process prints that imports late, from its first import on."""
    program = "\n".join(("import sys", "from connector.host import late_imports", *statements))
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()


def test_a_table_is_imported_without_the_parser_of_filters_which_still_works() -> None:
    parse = "print(pyiceberg.table.parser.parse('a > 5').term.name)"
    printed = run("late_imports.import_late()", "import pyiceberg.table", LOADED, parse, LOADED)
    assert printed == ["False", "a", "True"]


def test_the_parent_of_workers_does_not_load_the_parser() -> None:
    assert run("import connector.spark.tasks.daemon", "assert 'pyiceberg.table' in sys.modules", LOADED) == ["False"]
