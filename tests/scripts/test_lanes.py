"""A quick run has no test that starts Spark, a server or a container."""

import ast
import tomllib
from typing import Final

import pytest

from support.lanes import MARKERS, SERVERS, reason_to_leave_out
from support.repository import TESTS

# They start nothing themselves, but for the image, whose tests are marked.
OTHERS: Final = {"duckdb_reader", "image", "spark_files", "spark_reader_jars"}


def test_every_server_that_tests_share_is_known() -> None:
    tree = ast.parse((TESTS / "conftest.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    of_session = {each.name for each in functions if "session" in ast.unparse(each.decorator_list[0])}
    assert of_session == SERVERS | OTHERS


def test_every_marker_of_the_project_says_why_its_tests_are_left_out() -> None:
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert {line.partition(":")[0] for line in options["markers"]} == set(MARKERS)


def test_this_test_is_part_of_every_run(request: pytest.FixtureRequest) -> None:
    assert reason_to_leave_out(request.node, quick=True) is None
    assert reason_to_leave_out(request.node, quick=False) is None


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marked_test_is_left_out_of_quick_runs(marker: str, request: pytest.FixtureRequest) -> None:
    request.node.add_marker(marker)
    assert reason_to_leave_out(request.node, quick=True) == MARKERS[marker]
