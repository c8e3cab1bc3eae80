"""What the system says of a session's processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector.host.processes import find_stopped, read_memory

PAGE = os.sysconf("SC_PAGE_SIZE")


def write_process(directory: Path, number: int, parent: int, name: str, pages: int, state: str = "S") -> None:
    (directory / str(number)).mkdir()
    values = [state, str(parent), *["0"] * 19, str(pages), "0"]
    (directory / str(number) / "stat").write_text(f"{number} ({name}) {' '.join(values)}\n")


def test_descendants_of_the_jvm_are_workers(tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, "python3", 3)
    write_process(tmp_path, 11, 10, "java", 5)
    write_process(tmp_path, 12, 11, "python3) (x", 7)
    write_process(tmp_path, 13, 12, "python3", 11)
    write_process(tmp_path, 14, 1, "java", 100)
    assert read_memory(tmp_path, 10) == {"connector": 3 * PAGE, "jvm": 5 * PAGE, "workers": 18 * PAGE}


def test_the_name_of_another_process_may_be_any_bytes(tmp_path: Path) -> None:
    """Linux cuts names after 15 bytes, also in the middle of a letter."""
    write_process(tmp_path, 10, 1, "python3", 3)
    write_process(tmp_path, 11, 1, "a name", 5)
    (tmp_path / "11" / "stat").write_bytes((tmp_path / "11" / "stat").read_bytes().replace(b"a name", b"caf\xc3"))
    assert read_memory(tmp_path, 10) == {"connector": 3 * PAGE, "jvm": 0, "workers": 0}


def test_a_system_that_says_nothing_has_no_numbers(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == {}
    assert find_stopped(1, tmp_path) == []


def test_a_stopped_descendant_is_found_and_no_other_process(tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, "python3", 3, "T")
    write_process(tmp_path, 11, 10, "java", 5)
    write_process(tmp_path, 12, 11, "python3) T", 7)
    write_process(tmp_path, 13, 12, "python3", 7, "T")
    write_process(tmp_path, 14, 12, "python3", 7, "t")
    write_process(tmp_path, 15, 1, "java", 7, "T")
    assert find_stopped(10, tmp_path) == [13]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_this_process_has_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = read_memory()
        assert child.stdin
        child.stdin.close()
    assert found["connector"] > 10e6
    assert found["workers"] > 0
