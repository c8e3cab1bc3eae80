"""Small manifests become one without a change of rows, beside other writers, and whatever the catalog answers."""

from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, ServiceUnavailableError
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from connector.config.catalog import RestCatalog
from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.maintenance import rewrite_manifests as rewrite_module
from connector.iceberg.maintenance.rewrite_manifests import plan_manifests, rewrite_manifests
from connector.iceberg.metadata.manifests import manifests_of
from connector.model.table_identifier import OWNER_PROPERTY, Owner, TableIdentifier
from support.engines.foreign_deletes import delete_equal
from support.rows.staged_files import land
from support.rows.staged_rows import WRITER
from support.servers.rest_catalog import RestCatalogServer
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, ids_of
from support.tables.planted_faults import do_first, lose_answer, plant, plant_always, refuse

PATH: Final = TableIdentifier("rewritten_manifests", "orders")
OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties={OWNER_PROPERTY: OWNER.encode()})
    return catalog


def table_of(catalog: Catalog) -> Table:
    return catalog.load_table(PATH)


def manifests(catalog: Catalog) -> list[ManifestFile]:
    table = table_of(catalog)
    return manifests_of(table, table.current_snapshot())


def entries(catalog: Catalog) -> dict[str, tuple[Any, ...]]:
    """What decides which deletes apply to a file, by its path."""

    def facts(entry: ManifestEntry) -> tuple[Any, ...]:
        return entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, repr(entry.data_file.partition)

    io = table_of(catalog).io
    return {
        entry.data_file.file_path: facts(entry)
        for manifest in manifests(catalog)
        for entry in manifest.fetch_manifest_entry(io)
    }


def test_small_manifests_become_one_of_each_kind_and_spec(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number, path=PATH)
    for number in (0, 1):
        delete_equal(table_of(catalog), number)
    with table_of(catalog).update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "by_id")
    for number in (7, 8):
        table_of(catalog).append(pa.table({"id": [number]}, schema=table_of(catalog).schema().as_arrow()))
    before = entries(catalog)
    assert len(manifests(catalog)) == 7
    plan = rewrite_manifests(catalog, PATH, OWNER)
    assert (len(plan.replaced), len(plan.groups)) == (7, 3)
    kinds = sorted((manifest.partition_spec_id, manifest.content) for manifest in manifests(catalog))
    assert kinds == [(0, ManifestContent.DATA), (0, ManifestContent.DELETES), (1, ManifestContent.DATA)]
    assert entries(catalog) == before
    after = table_of(catalog).current_snapshot()
    assert after
    assert after.summary
    assert after.summary.operation.value == "replace"
    assert after.summary["flow.maintenance"] == "manifests"
    totals = {"total-records": "5", "total-data-files": "5", "total-delete-files": "2", "total-files-size": None}
    assert {name: after.summary[name] for name in totals} == totals, "the engine before counted none"
    assert not rewrite_manifests(catalog, PATH, OWNER).groups
    assert table_of(catalog).current_snapshot() == after


def test_manifests_become_one_although_commits_do_not_merge_them(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number, path=PATH)
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "false"})
    assert len(rewrite_manifests(catalog, PATH, OWNER).replaced) == 3
    assert len(manifests(catalog)) == 1


def test_manifests_of_the_target_size_stay(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, number, path=PATH)
    size = manifests(catalog)[0].manifest_length
    for target, groups in ((size, 0), (2 * size + 100, 2)):
        with table_of(catalog).transaction() as transaction:
            transaction.set_properties({"commit.manifest.target-size-bytes": str(target)})
        assert len(plan_manifests(table_of(catalog)).groups) == groups


def test_an_invalid_target_size_is_named(catalog: Catalog) -> None:
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": "large"})
    with pytest.raises(UserError) as error:
        plan_manifests(table_of(catalog))
    check_text("maintenance_errors", "manifests: an invalid target size", str(error.value))


def test_no_more_bytes_are_read_than_allowed_but_one_group(catalog: Catalog) -> None:
    for number in range(4):
        land(catalog, number, path=PATH)
    size = manifests(catalog)[0].manifest_length
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": str(2 * size + 100)})
    assert len(rewrite_manifests(catalog, PATH, OWNER, max_bytes=1).groups) == 1
    assert len(manifests(catalog)) == 3


def test_a_group_that_is_too_large_keeps_no_smaller_one_from_being_merged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of two manifests, the second of which is the large one."""
    for number in range(6):
        land(catalog, number, path=PATH)
    sizes = {each.manifest_path: size for each, size in zip(manifests(catalog), (4, 3, 8, 2, 4, 3), strict=True)}
    monkeypatch.setattr(rewrite_module, "size_of", lambda manifest: sizes[manifest.manifest_path])
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": "10"})
    plan = plan_manifests(table_of(catalog), 14)
    assert [[sizes[each.manifest_path] for each in group] for group in plan.groups] == [[4, 3], [4, 3]]
    assert plan.has_more


def test_a_manifest_of_deleted_files_only_goes(catalog: Catalog) -> None:
    land(catalog, 1, path=PATH)
    land(catalog, 2, path=PATH)
    table_of(catalog).delete("id = 1")
    assert sorted(len(manifest.fetch_manifest_entry(table_of(catalog).io)) for manifest in manifests(catalog)) == [0, 1]
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": "1"})
    rewrite_manifests(catalog, PATH, OWNER)
    assert [len(manifest.fetch_manifest_entry(table_of(catalog).io)) for manifest in manifests(catalog)] == [1]
    assert ids_of(catalog, PATH) == [2]


def test_a_commit_of_a_task_in_between_loses_nothing(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number, path=PATH)

    plant(catalog, [do_first(lambda: land(catalog, 3, path=PATH))])
    plan = rewrite_manifests(catalog, PATH, OWNER)
    assert len(plan.replaced) == 4
    assert len(manifests(catalog)) == 1
    land(catalog, 4, path=PATH)
    assert ids_of(catalog, PATH) == [0, 1, 2, 3, 4]


def test_an_answer_that_got_lost_is_looked_for_in_the_table(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number, path=PATH)

    plant(catalog, [lose_answer(ServiceUnavailableError("no answer"))])
    assert len(rewrite_manifests(catalog, PATH, OWNER).replaced) == 3
    assert len(table_of(catalog).snapshots()) == 4


def test_an_answer_without_the_snapshot_is_no_commit(catalog: Catalog) -> None:
    """A proxy may answer with the table as it was."""
    for number in range(3):
        land(catalog, number, path=PATH)
    old = table_of(catalog)
    plant(catalog, [lambda _: SimpleNamespace(metadata=old.metadata)])
    rewrite_manifests(catalog, PATH, OWNER)
    assert len(manifests(catalog)) == 1


@pytest.mark.parametrize(
    ("name", "error", "kind"),
    [
        ("manifests: another writer", CommitFailedException("branch main has changed"), RetryableError),
        ("manifests: no answer", ServiceUnavailableError("try later"), CommitUnknownError),
        ("manifests: forbidden", ForbiddenError("not allowed"), UserError),
    ],
)
def test_a_refusal_says_what_to_do(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, kind: type[ConnectorError]
) -> None:
    monkeypatch.setattr("connector.iceberg.commits.retry_commits.RETRY_FOR", 0.0)
    for number in range(2):
        land(catalog, number, path=PATH)
    plant_always(catalog, refuse(error))
    with pytest.raises(kind) as raised:
        rewrite_manifests(catalog, PATH, OWNER)
    check_text("maintenance_errors", name, str(raised.value))
    assert len(manifests(catalog)) == 2


def test_what_the_catalog_refuses_is_not_sent_again(catalog: Catalog) -> None:
    for number in range(2):
        land(catalog, number, path=PATH)
    plant(catalog, [refuse(ForbiddenError("not allowed"))])
    with pytest.raises(UserError):
        rewrite_manifests(catalog, PATH, OWNER)
    assert len(manifests(catalog)) == 2


@pytest.mark.catalog
def test_a_commit_in_between_loses_nothing_on_a_rest_catalog(rest_catalog: RestCatalogServer) -> None:
    """Its server keeps what a commit does not assert, and takes everything else."""
    with open_rest(RestCatalog(rest_catalog.uri, str(rest_catalog.warehouse)), {}) as catalog:
        foreign_table(catalog, PATH, properties={OWNER_PROPERTY: OWNER.encode()})
        for number in range(3):
            land(catalog, number, path=PATH)

        plant(catalog, [do_first(lambda: land(catalog, 3, path=PATH))])
        rewrite_manifests(catalog, PATH, OWNER)
        assert len(manifests(catalog)) == 1
        assert ids_of(catalog, PATH) == [0, 1, 2, 3]
        catalog.drop_table(PATH)
