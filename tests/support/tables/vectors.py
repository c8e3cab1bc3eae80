"""What the manifests of a table of format version 3 say about deletion vectors, read with PyIceberg's Puffin reader."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class Listed:
    """The live files of a table's current snapshot."""

    data: dict[str, ListedFile]  # by path
    vectors: dict[str, ListedFile]  # by data file
    others: list[ListedFile]  # other delete files

    @classmethod
    def of(cls, catalog: Catalog, path: TableIdentifier) -> "Listed":
        """Raises AssertionError if a vector is not as readers demand."""
        table = catalog.load_table(path)
        assert not list(find_problems_of_vectors(table))
        files = ManifestCache().list_files(table)
        return cls(
            {file.path: file for file in files if file.content is DataFileContent.DATA},
            {file.vector.data_path: file for file in files if file.vector},
            [file for file in files if file.content is not DataFileContent.DATA and not file.vector],
        )


def find_problems_of_vectors(table: Table) -> Iterator[str]:
    """A data file has one vector at most. It deletes rows that the file has, and as many as its entry says."""
    files = ManifestCache().list_files(table)
    data = {file.path: file for file in files if file.content is DataFileContent.DATA}
    vectors = [(file, file.vector) for file in files if file.vector]
    counts = Counter(vector.data_path for _, vector in vectors)
    yield from (f"two vectors of {path}" for path, count in counts.items() if count > 1)
    for file, vector in vectors:
        positions = read_positions(table, file.path)[vector.data_path]
        if vector.data_path not in data:
            yield f"a vector of {vector.data_path}, which is gone"
        elif max(positions) >= data[vector.data_path].rows or len(positions) != file.rows:
            yield f"the vector of {vector.data_path} has other rows than its entry says"
        elif file.partition != data[vector.data_path].partition:
            yield f"the vector of {vector.data_path} has another partition"


def read_positions(table: Table, puffin: str) -> dict[str, list[int]]:
    """The positions in a Puffin file, by data file."""
    with table.io.new_input(puffin).open() as stream:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
    return {each.referenced_data_file: each.to_vector().to_pylist() for each in vectors}


def check_totals(catalog: Catalog, path: TableIdentifier) -> None:
    """The totals in the newest summary are what the manifests list."""
    table = catalog.load_table(path)
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    files = ManifestCache().list_files(table)
    rows: Counter[DataFileContent] = Counter()
    for file in files:
        rows[file.content] += file.rows
    of_data = sum(file.content is DataFileContent.DATA for file in files)
    said = snapshot.summary.additional_properties
    assert {name: int(said[name]) for name in said if name.startswith("total-")} == {
        "total-data-files": of_data,
        "total-delete-files": len(files) - of_data,
        "total-records": rows[DataFileContent.DATA],
        "total-files-size": sum(file.size for file in files),
        "total-position-deletes": rows[DataFileContent.POSITION_DELETES],
        "total-equality-deletes": 0,
    }
