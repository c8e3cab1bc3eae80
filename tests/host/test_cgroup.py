"""The limits of a control group are found in both versions, in a container and below its parents."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from connector.host.cgroup import Cgroup

MB = 1 << 20


def control_group(directory: Path, membership: str, **files: str) -> Cgroup:
    """Files by their path, whose slashes are written as two underscores, and dots as one before the last."""
    (directory / "membership").write_text(membership)
    for name, text in files.items():
        place, _, file = name.rpartition("__")
        path = directory / "root" / place.replace("__", "/") / file.replace("_", ".", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Cgroup(directory / "membership", directory / "root")


VERSION_2 = {
    "memory_max": str(512 * MB),
    "memory_stat": "anon 7\nfile 5\nshmem 4\nshmem_thp 0",
    "memory_events": "oom 3\noom_kill 2",
    "cpu_max": "150000 100000",
}
VERSION_1 = {
    "memory__memory_limit_in_bytes": str(512 * MB),
    "memory__memory_stat": "cache 5\nrss 7\nshmem 4\ntotal_shmem 9",
    "memory__memory_oom_control": "under_oom 0\noom_kill 2",
    "cpu__cpu_cfs_quota_us": "150000",
    "cpu__cpu_cfs_period_us": "100000",
}
OF_VERSION_1 = "9:memory:/docker/4711\n4:cpu,cpuacct:/docker/4711\n1:name=systemd:/docker/4711\n"


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        pytest.param("0::/\n", VERSION_2, id="version 2, in a container"),
        pytest.param("0::/a/b\n", {f"a__b__{name}": text for name, text in VERSION_2.items()}, id="version 2, outside"),
        pytest.param(OF_VERSION_1, VERSION_1, id="version 1, in a container"),
        pytest.param(f"{OF_VERSION_1}0::/docker/4711\n", VERSION_1, id="version 1, with an unused version 2"),
    ],
)
def test_limits_are_found(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    group = control_group(tmp_path, membership, **files)
    assert (group.memory, group.files_in_memory) == (512 * MB, 4)
    assert (group.cores, group.killed_for_memory) == (1.5, 2)


def test_a_parents_limit_counts_where_it_is_smaller(tmp_path: Path) -> None:
    group = control_group(
        tmp_path, "0::/a/b\n", a__memory_max=str(256 * MB), a__b__memory_max=str(512 * MB), a__b__cpu_max="max 100000"
    )
    assert (group.memory, group.cores) == (256 * MB, None)


@pytest.mark.parametrize(
    ("of_group", "killed"), [({"a__b__memory_events": "oom_kill 0"}, 0), ({}, 3)], ids=["its own", "its parent's"]
)
def test_processes_of_other_groups_do_not_count_where_the_group_has_a_number(
    tmp_path: Path, of_group: dict[str, str], killed: int
) -> None:
    """A parent's number has those of all groups below it."""
    group = control_group(tmp_path, "0::/a/b\n", a__memory_events="oom_kill 3", **of_group)
    assert group.killed_for_memory == killed


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"memory_max": "max", "cpu_max": "max 100000"}),
        (
            OF_VERSION_1,
            VERSION_1 | {"memory__memory_limit_in_bytes": "9223372036854771712", "cpu__cpu_cfs_quota_us": "-1"},
        ),
        ("", {}),
    ],
    ids=["version 2", "version 1", "none"],
)
def test_no_limit_is_none(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    group = control_group(tmp_path, membership, **files)
    assert (group.memory, group.cores) == (None, None)


@pytest.mark.parametrize("name", [b"caf\xe9", "café".encode(), b"a\x0bb"])
def test_a_group_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    group = tmp_path / os.fsdecode(name)
    group.mkdir()
    (group / "memory.max").write_text(str(512 * MB))
    (tmp_path / "membership").write_bytes(b"0::/" + name + b"\n")
    assert Cgroup(tmp_path / "membership", tmp_path).memory == 512 * MB


def test_a_machine_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    group = Cgroup(tmp_path / "membership", tmp_path)
    assert (group.memory, group.cores, group.killed_for_memory, group.files_in_memory) == (None, None, 0, 0)


AS_ANOTHER_USER: Final = """
import os, sys
from pathlib import Path
from connector.host.cgroup import Cgroup
if os.geteuid() == 0:
    os.setuid(65534)  # root may read everything
group = Cgroup(*map(Path, sys.argv[1:]))
print(group.memory, group.cores, group.killed_for_memory, group.files_in_memory)
"""


@pytest.mark.parametrize("unreadable", ["membership", "root"])
def test_limits_that_may_not_be_read_are_none_and_said_once(unreadable: str) -> None:
    with TemporaryDirectory() as name:  # tmp_path is for its owner only
        directory = Path(name)
        directory.chmod(0o755)
        control_group(directory, "0::/\n", **VERSION_2)
        (directory / unreadable).chmod(0)
        arguments = [f"{directory}/membership", f"{directory}/root"]
        ran = subprocess.run([sys.executable, "-c", AS_ANOTHER_USER, *arguments], capture_output=True, text=True)
    assert ran.stdout == "None None 0 0\n"
    said = f"the limits of the control group are not known, because {' or '.join(arguments)} may not be read"
    assert ran.stderr == f"{said}\n"
