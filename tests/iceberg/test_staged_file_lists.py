"""A list of staged files that cannot be read is told as that, and lands once it can be read again."""

import os
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from connector.host.errors import RetryableError, UnfitCommitError
from connector.iceberg.commits import commit
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.rows.staged_files import listed, place_of, stage
from support.rows.staged_rows import WRITER
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, ids_of


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH)
    return catalog


def stage_listed(catalog: Catalog, *ids: int) -> tuple[StagedCommit, Path]:
    """A transaction whose files are too many for the state, and where their list is."""
    staged = listed(catalog.load_table(PATH), stage(catalog, PATH, WRITER, *ids))
    [location] = staged.locations
    return staged, place_of(location)


def metadata_files(catalog: Catalog) -> list[str]:
    return os.listdir(f"{catalog.load_table(PATH).location().removeprefix('file://')}/metadata")


def test_a_list_that_cannot_be_read_now_is_the_cause_that_is_told(catalog: Catalog) -> None:
    staged, place = stage_listed(catalog, 1, 2)
    before = metadata_files(catalog)
    content = place.read_bytes()
    place.unlink()
    with pytest.raises(RetryableError, match="No such file or directory") as error:
        commit.commit_all_or_raise(catalog, [staged])
    assert str(error.value).startswith(f"file://{place}: ")
    assert metadata_files(catalog) == before
    place.write_bytes(content)
    commit.commit_all_or_raise(catalog, [staged])
    assert ids_of(catalog, PATH) == [1, 2]


def test_a_list_that_was_cut_short_is_named(catalog: Catalog) -> None:
    staged, place = stage_listed(catalog, 1, 2)
    content = place.read_bytes()
    for broken in (content[:-20], b"\xff" + content, b""):
        place.write_bytes(broken)
        with pytest.raises(UnfitCommitError) as error:
            commit.commit_all_or_raise(catalog, [staged])
        assert str(error.value).startswith(f"file://{place}: ")
    check_text("commit_errors", "a list of staged files that was cut short", str(error.value), {str(place): "/LIST"})
    place.write_bytes(content)
    commit.commit_all_or_raise(catalog, [staged])
    assert ids_of(catalog, PATH) == [1, 2]
