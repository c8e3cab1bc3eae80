"""What the threads of a session get to do their work."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import UnauthorizedError

from connector.config.credentials import AwsCredentials, AwsIam
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.evolution.property_changes import COMPACTION_PROPERTY
from connector.host.errors import RefusedKeysError, SignInError
from connector.iceberg.fences.fence import NONE
from connector.iceberg.maintenance import compact_table
from connector.session.session_threads import run_threads
from support.bindings import PATH
from support.rows.staged_files import land, stage
from support.rows.staged_rows import WRITER
from support.sessions.processes import wait_until
from support.tables.compacting import EAGER, expire_access
from support.tables.local_tables import foreign_table
from support.tables.planted_faults import plant, refuse

UNUSED: Final[Any] = None


@pytest.mark.parametrize(
    ("credentials", "refused", "ends"),
    [
        (AwsIam("role", "eu-west-1", "ASIA", Secret("s")), "ExpiredTokenException", True),
        (AwsIam("role", "eu-west-1", "ASIA", Secret("s")), "the catalog's own token is unknown", False),
        (AwsCredentials("AKIA", Secret("s")), "ExpiredTokenException", False),
    ],
)
def test_keys_that_only_the_next_session_renews_end_theirs(
    credentials: AwsIam | AwsCredentials, refused: str, ends: bool, catalog: Catalog
) -> None:
    """The runtime has assumed the role. A quiet source would send no rows whose files fail with the same keys."""
    foreign_table(catalog, PATH)
    staged = stage(catalog, PATH, WRITER, 1)
    plant(catalog, [refuse(UnauthorizedError(refused))])
    config = EndpointConfig(namespace="shop", credentials=credentials)
    with run_threads(catalog, WRITER.materialization, WRITER.key_range, config, UNUSED) as threads:
        with pytest.raises(RefusedKeysError) if ends else nullcontext():
            assert threads.committer.commit([staged]) == []
        assert isinstance(threads.committer.find_error(staged.chain_id), SignInError)


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
