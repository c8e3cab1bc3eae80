"""The Local catalog is in its warehouse directory, and an error names a directory that cannot be used."""

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from connector.config.endpoint_config import EndpointConfig
from connector.host.errors import RetryableError, UserError
from connector.iceberg.catalogs import opening
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import STORE_FILE_IO
from iceberg.catalog_configs import SCHEMA, local
from support.sessions.small_disk import small_disk
from support.snapshots import check_text


def test_a_local_catalog_and_its_tables_are_in_the_warehouse_directory(tmp_path: Path) -> None:
    endpoint = local(tmp_path / "a b" / "wh")
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace("ns")
        table = catalog.create_table(("ns", "t"), SCHEMA, location=table_location(endpoint, TableIdentifier("ns", "t")))
    assert catalog.name == "local"
    assert (tmp_path / "a b" / "wh" / "catalog.db").is_file()
    assert Path(table.metadata_location.removeprefix("file://")).is_relative_to(tmp_path / "a b" / "wh" / "ns")
    with open_catalog(endpoint) as again:
        assert again.load_table(("ns", "t")).metadata == table.metadata


@pytest.mark.parametrize(
    "write",
    [
        lambda catalog: catalog.create_namespace("other"),
        lambda catalog: catalog.create_table("ns.t", SCHEMA),
    ],
    ids=["catalog", "metadata"],
)
def test_a_full_disk_is_named_with_the_catalog_that_it_holds(
    tmp_path: Path, write: Callable[[Catalog], object]
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        endpoint = local(disk.directory)
        with open_catalog(endpoint) as catalog:
            catalog.create_namespace("ns")
            with disk.filled(), pytest.raises(RetryableError) as error, translate_errors(endpoint):
                write(catalog)
    check_text("catalog_errors", "Local: a full disk", str(error.value), {str(disk.directory): "DIRECTORY"})


def test_a_new_local_catalog_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    # A round collides with a chance of about one half: ten do not all miss it.
    openers = 8
    outcomes: list[str] = []
    for round_ in range(10):
        barrier = threading.Barrier(openers)

        def open_with_the_others(barrier: threading.Barrier, endpoint: EndpointConfig) -> None:
            barrier.wait()
            with open_catalog(endpoint) as catalog:
                outcomes.append(catalog.name)

        arguments = (barrier, local(tmp_path / str(round_)))
        threads = [threading.Thread(target=open_with_the_others, args=arguments) for _ in range(openers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["local"] * openers * 10


def test_without_a_warehouse_the_process_has_one_temporary_directory_and_says_which(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(opening, "_temporary_warehouse", cache(opening._temporary_warehouse.__wrapped__))
    with open_catalog(local(None)) as first:
        first.create_namespace("ns")
    with open_catalog(local(None)) as second:
        assert second.namespace_exists("ns")
    (directory,) = tmp_path.iterdir()
    assert f"file://{directory}/ns/t_" in str(table_location(local(None), TableIdentifier("ns", "t")))
    assert [record.getMessage() for record in caplog.records if str(directory) in record.getMessage()] == [
        f"the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, {directory}, in which "
        "no other process looks for them"
    ]


def test_a_temporary_warehouse_that_cannot_be_made_is_an_error_that_names_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setattr(opening, "_temporary_warehouse", cache(opening._temporary_warehouse.__wrapped__))
    with pytest.raises(UserError, match=f"no temporary directory in {tmp_path}/missing can be made.*TMPDIR"):
        open_catalog(local(None))


@pytest.mark.parametrize("obstacle", ["wh", "wh/catalog.db/x", "wh/catalog.db"])
def test_a_warehouse_that_cannot_be_used_is_named(tmp_path: Path, obstacle: str) -> None:
    (tmp_path / obstacle).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / obstacle).write_bytes(b"this is no database, and no directory" * 100)
    with pytest.raises(UserError, match=f"the warehouse directory {tmp_path}/wh of the Local catalog cannot be used"):
        open_catalog(local(tmp_path / "wh"))


@pytest.mark.parametrize("name", ["of#1", "of?1", "of 1"])
def test_a_table_is_found_by_a_path_that_would_be_cut_as_a_uri(tmp_path: Path, name: str) -> None:
    """Another engine may have registered it. What writes to the table says what is wrong with its location."""
    catalog = open_catalog(local(tmp_path / "warehouse"))
    catalog.create_namespace("ns")
    made = catalog.create_table("ns.t", SCHEMA).metadata_location.removeprefix("file://")
    metadata = tmp_path / name / "1.metadata.json"
    metadata.parent.mkdir()
    metadata.write_bytes(Path(made).read_bytes())
    catalog.register_table("ns.registered", str(metadata))
    assert catalog.load_table("ns.registered").metadata_location == str(metadata)


def test_tables_of_a_warehouse_that_was_moved_are_found_once_its_old_path_leads_there(tmp_path: Path) -> None:
    old, new, path = tmp_path / "old", tmp_path / "new", ("ns", "t")
    with open_catalog(local(old)) as catalog:
        catalog.create_namespace("ns")
        made = catalog.create_table(path, SCHEMA, location=table_location(local(old), TableIdentifier(*path)))
    old.rename(new)
    file = made.metadata_location.removeprefix("file://")
    with open_catalog(local(new)) as catalog:
        with pytest.raises(UserError) as raised, translate_errors(local(new)):
            catalog.load_table(path)
        old.symlink_to(new)
        assert catalog.load_table(path).metadata == made.metadata
    check_text("catalog_errors", "Local: a moved warehouse", str(raised.value), {file: "FILE", str(new): "NEW"})


def test_a_table_s_properties_name_no_code_that_opens_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_in_properties.py").write_text("raise SystemExit('code of a table')")
    monkeypatch.syspath_prepend(tmp_path)
    planted = {"py-io-impl": "planted_in_properties.FileIO"}
    with open_catalog(local(tmp_path / "wh")) as catalog:
        catalog.create_namespace("ns")
        catalog.create_table("ns.t", SCHEMA, properties=planted)
        with catalog.create_table("ns.u", SCHEMA).transaction() as change:
            change.set_properties(planted)
        for name in ("ns.t", "ns.u"):
            assert catalog.load_table(name).io.properties["py-io-impl"] == STORE_FILE_IO
