"""Spark's processes inherit what they need, and nothing that signs in or belongs to another Spark."""

import os
import subprocess
from pathlib import Path

import pytest

from connector.spark.jvm import jvm_command
from connector.spark.jvm.java import find_java
from connector.spark.jvm.jvm_command import make_command, make_environment, select_inherited
from support.engines.readers import ledger_table
from support.sessions.processes import new_mark
from support.sessions.runtime import Runtime

SIGN_INS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HADOOP_CREDSTORE_PASSWORD",
    "PGPASSWORD",
    "PGPASSFILE",
    "PYICEBERG_CATALOG__LAKE__URI",
    "MYSQL_PWD",
    "REDIS_PASSWD",
    "SMTP_PASS",
    "GPG_PASSPHRASE",
    "DATADOG_API_KEY",
    "DD_APP_KEY",
    "SIGNING_KEY",
    "GITHUB_PAT",
    "AZURE_STORAGE_SAS",
)
NEEDED = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "JAVA_TOOL_OPTIONS",
    "HADOOP_HOME",
    "HADOOP_TOKEN_FILE_LOCATION",
    "KRB5CCNAME",
    "https_proxy",
    "SSL_CERT_FILE",
    "AWS_CA_BUNDLE",
    "AWS_EC2_METADATA_DISABLED",
    "PWD",
    "OLDPWD",
    "GIT_ASKPASS",
)


def test_what_signs_in_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SIGN_INS, *NEEDED):
        monkeypatch.setenv(name, "set")
    assert os.environ.keys() >= {*SIGN_INS, *NEEDED}
    assert [name for name in (*SIGN_INS, *NEEDED) if name in select_inherited()] == list(NEEDED)


@pytest.mark.parametrize(
    ("name", "value", "is_inherited"),
    [
        ("DATABASE_URL", "postgres://user:planted@host/db", False),
        ("DATABASE_URL", "postgres://user:plan/ted@host/db", False),
        ("PIP_INDEX_URL", "https://:planted@host/simple", False),
        ("HTTPS_PROXY", "http://user:planted@proxy:3128", True),  # tasks reach the object store through it
        ("ADDRESS", "https://host:443/user@host", True),
        ("ADDRESS", "https://user@host", True),
        ("PATH", "/opt//bin:/home/user@host/bin", True),
    ],
)
def test_an_address_with_a_password_is_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_inherited: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert (name in select_inherited()) == is_inherited


def test_what_this_process_has_set_for_itself_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks would take it for the user's choice."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    assert "AWS_REQUEST_CHECKSUM_CALCULATION" in select_inherited()
    monkeypatch.setattr(jvm_command, "NOT_INHERITED", {"AWS_REQUEST_CHECKSUM_CALCULATION"})
    assert "AWS_REQUEST_CHECKSUM_CALCULATION" not in select_inherited()


def test_hadoop_s_client_in_a_worker_has_the_user_s_class_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLASSPATH", "/etc/hadoop:/hadoop/*")
    assert make_environment(tmp_path / "connection")["CLASSPATH"] == "/etc/hadoop:/hadoop/*"


@pytest.mark.parametrize("chosen", [{}, {"HADOOP_USER_NAME": "etl"}])
def test_tasks_are_the_user_of_hdfs_that_this_process_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: dict[str, str]
) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    for name, user in chosen.items():
        monkeypatch.setenv(name, user)
    environment = make_environment(tmp_path / "connection")
    assert {name: user for name, user in environment.items() if name == "HADOOP_USER_NAME"} == chosen


def test_a_user_may_have_no_home_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the user of a container, where nothing sets HOME."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # of no user
    assert "-Duser.home=/" in make_command("512m", Path("/tmp"), [])


def test_names_of_files_are_utf_8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TMPDIR may have any name."""
    monkeypatch.setenv("LC_ALL", "C")
    environment = make_environment(tmp_path / "connection")
    show = [str(find_java()), "-XshowSettings:properties", "-version"]
    shown = subprocess.run(show, env=environment, capture_output=True, text=True, check=True).stderr
    assert "sun.jnu.encoding = UTF-8" in shown


def test_the_system_s_messages_are_in_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors are recognised by them. LANGUAGE would count more than LC_ALL."""
    monkeypatch.setenv("LANGUAGE", "de")
    assert not make_environment(tmp_path / "connection")["LANGUAGE"]


@pytest.mark.spark
def test_the_settings_of_another_spark_on_this_machine_have_no_effect(tmp_path: Path) -> None:
    """Such as those that a cluster's node has in its profile."""
    conf, elsewhere = tmp_path / "conf", tmp_path / "elsewhere"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.extraListeners org.example.Missing\n")
    environment = {
        **new_mark(),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "SPARK_LOCAL_DIRS": str(elsewhere),
        "SPARK_LOCAL_IP": "192.0.2.1",
        "PYSPARK_PIN_THREAD": "false",
    }
    with Runtime(tmp_path, environment=environment).open(publish=True) as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    table = ledger_table(tmp_path)
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    assert not elsewhere.exists()
