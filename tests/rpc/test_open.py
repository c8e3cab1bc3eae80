"""What opening a session does first."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector import REVISION_VARIABLE, VERSION
from connector.host.errors import InvalidConfigError
from connector.host.logs import FIELDS
from connector.rpc import open
from protocol import request
from protocol.flow import KEY_END, Materialization, Range
from support.repository import REPOSITORY
from support.sessions.runtime import Runtime


@pytest.mark.parametrize(
    ("revision", "part", "text"),
    [
        ("", None, f"materialize-iceberg {VERSION} opens the task acmeCo/task, with 0 binding(s)"),
        (
            "0123abc",
            Range(key_begin=1 << 31, key_end=KEY_END),
            f"materialize-iceberg {VERSION} (revision 0123abc) opens the task acmeCo/task for the key range "
            "80000000-ffffffff, with 0 binding(s)",
        ),
    ],
)
def test_the_first_record_of_a_session_names_the_connector_and_the_task(
    revision: str,
    part: Range | None,
    text: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a session that does not open."""
    monkeypatch.setenv(REVISION_VARIABLE, revision)
    monkeypatch.setattr(open, "ENVIRONMENT", {})
    message = request.Open(Materialization("acmeCo/task", config={}), range=part)
    with caplog.at_level(logging.INFO), pytest.raises(InvalidConfigError), open.handle_open(message):
        pass
    assert caplog.records[0].getMessage() == text
    assert getattr(caplog.records[0], FIELDS) == {
        "event": "opening",
        "version": VERSION,
        "revision": revision,
        "task": "acmeCo/task",
        "keyRange": "80000000-ffffffff" if part else "00000000-ffffffff",
        "bindings": 0,
    }


def test_spark_starts_before_what_takes_as_long_to_import_is_imported() -> None:
    modules = imported("connector.rpc.open", "connector.config.config_problems")
    assert "connector.spark.jvm.spark_session" in modules
    assert not {"pyiceberg", "pyarrow", "pyspark", "sqlalchemy"}.intersection(modules)


def test_a_catalog_that_is_no_database_does_without_the_client_of_databases() -> None:
    catalogs = "connector.iceberg.catalogs"
    clients = (f"{catalogs}.rest", f"{catalogs}.glue", f"{catalogs}.hive")
    modules = imported("connector.session.open_session", "connector.session.session_threads", *clients)
    assert "connector.iceberg.commits.commit" in modules
    assert "sqlalchemy" not in modules


@pytest.mark.spark
def test_open_is_answered_before_what_writes_and_searches_is_loaded(tmp_path: Path) -> None:
    """It takes a third of the time to the answer."""
    Runtime(tmp_path).apply()
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")])
    traced = Runtime(tmp_path, environment={"PYTHONPATH": path}, module=("support.sessions.imported_at_opened",))
    loaded = {*traced.open_and_fail().log.split()}
    assert "connector.session.open_tables" in loaded
    later = {
        "connector.evolution.table_change",
        "connector.iceberg.commits.commit",
        "connector.session.session_threads",
        "connector.session.transactions",
    }
    assert not loaded & {"botocore", "numpy", "pyarrow", "pyparsing", "pyspark", *later}


@pytest.mark.spark
def test_recovery_is_searched_for_garbage(tmp_path: Path) -> None:
    """It can take long, and what it left would stay for the rest of the session."""
    program = f"""
import gc
from connector.rpc.open import handle_open
from connector.session import open_tables
from protocol.flow import Materialization
from protocol.request import Open
open_tables.bind_all = lambda *_: print(gc.isenabled()) or []
catalog = {{"catalog_type": "Local", "warehouse": {str(tmp_path)!r}}}
task = Materialization("acmeCo/task", config={{"namespace": "shop", "catalog": catalog}})
with handle_open(Open(task)):
    pass
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "True\n"


def test_what_files_in_s3_have_taken_of_memory_is_taken_again() -> None:
    """By an allocator that can: Arrow's own keeps ten megabytes for each file that was written at once."""
    program = """
from connector import command_line, driver
def serve(*_):
    import pyarrow, sys
    print(pyarrow.default_memory_pool().backend_name, file=sys.stderr)
driver.serve = serve
command_line.main([])
"""
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert ended.stderr == "jemalloc\n"


def test_a_process_that_crashes_leaves_no_core_which_would_have_its_secrets() -> None:
    program = """
import resource
from connector import command_line
limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
command_line.main([])
print(*resource.getrlimit(resource.RLIMIT_CORE)[:1])
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1] == "0"


def test_a_transaction_may_have_rows_for_more_bindings_than_files_are_usually_allowed(tmp_path: Path) -> None:
    """Each binding has an open block on the spool."""
    program = f"""
import pathlib, resource
from connector import command_line
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
command_line.main([])
from connector.spark.blocks.spool import Spool
from protocol.request import Store
spool = Spool(pathlib.Path({str(tmp_path / "spool")!r}))
for binding in range(1000):
    spool.add(Store(binding, binding + 1, 1, (b"{{}}\\n",)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def test_what_only_some_sessions_or_only_workers_need_is_loaded_later() -> None:
    later = {
        "connector.encoding.rewriting.group_compaction",
        "connector.encoding.search.row_search",
        "connector.iceberg.session_views",
        "connector.iceberg.table_view",
        "connector.session.loads",
        "connector.spark.jobs.search_job",
    }
    loaded = imported("connector.session.open_session", "connector.session.session_threads")
    assert "connector.spark.jobs.compaction_job" in loaded
    assert not loaded & later


def imported(*modules: str) -> set[str]:
    """Everything that a process has loaded once it has imported these."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return set(printed.split())
