"""What the threads of a session get to do their work."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from connector.config.endpoint_config import EndpointConfig
from connector.evolution.property_changes import COMPACTION_PROPERTY
from connector.iceberg.fences.fence import NONE
from connector.iceberg.maintenance import compact_table
from connector.session.session_threads import run_threads
from support.bindings import PATH
from support.rows.staged_files import land, stage
from support.rows.staged_rows import WRITER
from support.sessions.processes import wait_until
from support.tables.compacting import EAGER, expire_access
from support.tables.local_tables import foreign_table


def test_new_credentials_that_are_refused_fail_a_group_of_a_compaction(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another error would end the whole run."""
    foreign_table(catalog, PATH, properties=EAGER | {COMPACTION_PROPERTY: "true"})
    prev = NONE
    for number in range(3):
        prev = land(catalog, number, prev=prev).next
    monkeypatch.setattr(compact_table, "access_to", expire_access)
    spark: Any = SimpleNamespace(maintenance_tasks=1, maintain=pytest.fail)
    config = EndpointConfig(namespace="shop")
    with run_threads(catalog, WRITER.materialization, WRITER.key_range, config, spark) as threads:
        threads.committer.commit([stage(catalog, PATH, WRITER, 3, prev=prev)])
        assert wait_until(lambda: "not compacted: " in caplog.text)
    assert "4 data file(s) were not compacted: table shop.orders was dropped or renamed" in caplog.text
