"""A Load does not find the rows that pending commits delete, whatever happens to their files and to the commits."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.search.row_search import search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.table_view import TableView, ViewFactory
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.rows.updated_rows import UPDATES, make_table, stage_updates, values_of
from support.tables.local_tables import rewrite_by_another_engine


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    commit_all_or_raise(catalog, [stage_updates(catalog, {1: "a", 2: "b", 3: "c"})])
    return catalog


def view(catalog: Catalog, *pending: StagedCommit) -> TableView:
    return ViewFactory(ManifestCache()).make(catalog.load_table(PATH), pending)


def find(catalog: Catalog, files: TableView, ids: Sequence[int]) -> list[str]:
    texts = pa.array([f"[{number}]" for number in ids])
    keys = SearchedKeys(keys_of_texts(texts, UPDATES.parts, [LongType()]), UPDATES, ["id"])
    io = catalog.load_table(PATH).io
    found = [search(io, file, keys, with_documents=True) for file in files.files]
    return [text for rows in found for each in rows if each.documents for text in each.documents.to_pylist()]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_deleted_row_is_not_found_after_another_engine_has_moved_it(catalog: Catalog, is_compacted: bool) -> None:
    first = stage_updates(catalog, {2: "B"}, removed=[1])
    second = stage_updates(catalog, {}, removed=[2], after=[first])
    if is_compacted:
        rewrite_by_another_engine(catalog, PATH)
    pending = view(catalog, first, second)
    assert find(catalog, pending, [1, 2, 3]) == ['{"id": 3, "value": "c"}']

    third = stage_updates(catalog, {1: "A"}, after=[first, second])
    assert third.located
    assert third.located.location is None
    commit_all_or_raise(catalog, [first, second, third])
    assert values_of(catalog) == {1: "A", 3: "c"}


def test_a_search_does_not_need_what_the_commit_removes(catalog: Catalog) -> None:
    """A session retries pending commits while it answers Loads."""
    pending = stage_updates(catalog, {2: "B"}, removed=[1])
    before = view(catalog, pending)
    commit_all_or_raise(catalog, [pending])
    assert pending.located
    assert pending.located.location
    catalog.load_table(PATH).io.delete(pending.located.location)
    assert find(catalog, before, [1, 2]) == ['{"id": 2, "value": "B"}']
