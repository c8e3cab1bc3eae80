"""What the manifests of a table of format version 3 say about deletion vectors, read with PyIceberg's Puffin reader."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from connector.iceberg.metadata.listed_files import ListedFile, ManifestReader
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class Listed:
    """The live files of a table's current snapshot."""

    data: dict[str, ListedFile]  # by path
    vectors: dict[str, ListedFile]  # by data file
    others: list[ListedFile]  # other delete files

    @classmethod
    def of(cls, catalog: Catalog, path: TableIdentifier) -> "Listed":
        """Each data file has one vector at most, which deletes rows that it has, and as many as the entry says."""
        files = ManifestReader().list_files(catalog.load_table(path))
        vectors = [file for file in files if file.vector]
        found = cls(
            {file.path: file for file in files if file.content is DataFileContent.DATA},
            {file.vector.data_path: file for file in vectors if file.vector},
            [file for file in files if file.content is not DataFileContent.DATA and not file.vector],
        )
        assert len(found.vectors) == len(vectors), "two vectors for a data file"
        assert found.vectors.keys() <= found.data.keys(), "a vector for a data file that is gone"
        for data_path, vector in found.vectors.items():
            positions = read_positions(vector.path)[data_path]
            assert len(positions) == len(set(positions)) == vector.rows <= found.data[data_path].rows
            assert max(positions) < found.data[data_path].rows
        return found


def read_positions(puffin: str) -> dict[str, list[int]]:
    """The positions in a Puffin file, by data file."""
    file = PuffinFile(Path(puffin.removeprefix("file:").replace("///", "/")).read_bytes())
    return {each.referenced_data_file: each.to_vector().to_pylist() for each in deletion_vectors_from_puffin_file(file)}


def check_totals(catalog: Catalog, path: TableIdentifier) -> None:
    """The totals in the newest summary are what the manifests list."""
    table = catalog.load_table(path)
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    files = ManifestReader().list_files(table)
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
