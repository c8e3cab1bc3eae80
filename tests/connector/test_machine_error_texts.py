"""What a person reads of a machine, an environment or a command line that will not do, kept in a file to be
reviewed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from connector.checks import spark_installation
from connector.cli.commands import plan_command
from connector.cli.config_files import read_file
from connector.cli.task_tables import parse_table, read_commits
from connector.config.endpoint_config import EndpointConfig
from connector.host import logs
from connector.host.cgroup import Cgroup
from connector.host.errors import ConnectorError
from connector.host.tempdirs import make_directories
from connector.spark.jobs.write_job import open_claim_server
from connector.spark.jvm.cluster import check_master, parse_claims_address
from connector.spark.jvm.java import find_java
from connector.spark.limits import Limits
from support.snapshots import check_text

SOMEWHERE: Final = "no-such-directory"
MASTER: Final = {"spark.master": "spark://127.0.0.1:1"}

# What is asked, with a directory of the test's own and the environment that it is asked in.
Case = Callable[[Path], object]


def java_that(script: str, *, release: str = "") -> Callable[[Path], Path]:
    """JAVA_HOME, where `bin/java` does this."""

    def make(directory: Path) -> Path:
        command = directory / "bin" / "java"
        command.parent.mkdir(parents=True)
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        if release:
            (directory / "release").write_text(f'JAVA_VERSION="{release}"\n')
        return directory

    return make


def in_little_memory(directory: Path) -> object:
    (directory / "membership").write_text("0::/\n")
    (directory / "memory.max").write_text(str(100 << 20))
    return Limits.of(Cgroup(directory / "membership", directory), directory)


def with_scratch(_: Path) -> object:
    with make_directories() as directories:
        return directories


def not_json(directory: Path) -> object:
    (directory / "config.json").write_text("{planted")
    return read_file(str(directory / "config.json"))


CASES: Final[Mapping[str, Case]] = {
    "a file that is not there": lambda directory: read_file(str(directory / SOMEWHERE)),
    "a file that is not JSON": not_json,
    "no apply request to plan": lambda _: plan_command.plan_recorded([]),
    "a table without a namespace": lambda _: parse_table("orders", EndpointConfig(namespace="shop")),
    "a state without a task": lambda _: read_commits("state.json", ""),
    "a container with little memory": in_little_memory,
    "a master that is none": lambda _: check_master({"spark.master": "spark://host"}),
    "a master that Spark does not know": lambda _: check_master({"spark.master": "loca[2]"}),
    "tasks that are none": lambda _: check_master({"spark.default.parallelism": "0"}),
    "a master that does not answer": lambda _: check_master(MASTER),
    "a port that is none": lambda _: parse_claims_address({**MASTER, "spark.materialize.claims.port": "70000"}),
    "an address of another machine": lambda directory: open_claim_server(
        {**MASTER, "spark.driver.bindAddress": "192.0.2.1", "spark.driver.host": "driver"}, directory
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_will_not_do_is_said_with_what_to_change(name: str, tmp_path: Path) -> None:
    check(name, lambda: CASES[name](tmp_path), tmp_path)


ENVIRONMENTS: Final[Mapping[str, tuple[str, str | Callable[[Path], Path], Callable[[], object]]]] = {
    "an unknown format of records": ("LOG_FORMAT", "xml", logs.configure),
    "an unknown level of records": ("LOG_LEVEL", "loud", logs.configure),
    "temporary files nowhere": ("TMPDIR", lambda directory: directory / SOMEWHERE, lambda: with_scratch(Path())),
    "temporary files in several places": ("TMPDIR", lambda directory: directory / "a,b", lambda: with_scratch(Path())),
    "Java nowhere": ("JAVA_HOME", lambda directory: directory, find_java),
    "an old Java": ("JAVA_HOME", java_that("", release="11.0.2"), find_java),
    "an old Java that does not say so": (
        "JAVA_HOME",
        java_that("""echo 'version "11.0.2"' >&2"""),
        spark_installation.find_installation,
    ),
    "a Java that cannot be run": (
        "JAVA_HOME",
        java_that("echo no libjvm.so >&2; exit 6"),
        spark_installation.find_installation,
    ),
    "a Java that says in another encoding why it cannot be run": (
        "JAVA_HOME",
        java_that(r"printf 'libjvm.so n\303\251\351\n' >&2; exit 6", release="17.0.1"),
        spark_installation.find_installation,
    ),
}


def test_a_java_may_describe_itself_in_another_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that(r"""printf 'Picked up JAVA_TOOL_OPTIONS: -Dname=\351\nversion "17.0.1"\n' >&2""")(tmp_path)
    (tmp_path / "release").write_bytes(b'IMPLEMENTOR="\xe9"\nJAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert spark_installation.find_installation().java_version == "17.0.1"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_that_will_not_do_is_said_with_what_to_change(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, value, asked = ENVIRONMENTS[name]
    monkeypatch.setenv(variable, value if isinstance(value, str) else str(value(tmp_path)))
    check(name, asked, tmp_path)


def test_a_machine_without_java_is_said_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("connector.spark.jvm.java.find_spec", lambda _: None)
    check("no Java", find_java, tmp_path)


def check(name: str, asked: Callable[[], object], directory: Path) -> None:
    with pytest.raises(ConnectorError) as error:
        asked()
    check_text("machine_errors", name, str(error.value), {str(directory): "…"})
