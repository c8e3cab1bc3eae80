"""What readers demand of the deletion vectors in tables of format version 3."""

from collections import Counter
from collections.abc import Sequence

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from connector.iceberg.metadata.manifests import find_vector
from connector.iceberg.metadata.row_lineage import first_row_id_of
from support.engines.row_ids import find_problem_of_ids


def vectors_in(content: bytes) -> Sequence[tuple[str, int]]:
    """The data files and positions of all vectors in a Puffin file."""
    vectors = deletion_vectors_from_puffin_file(PuffinFile(content))
    return [(each.referenced_data_file, position) for each in vectors for position in each.to_vector().to_pylist()]


def find_problem(snapshot_id: int, live: Sequence[ManifestEntry]) -> str | None:
    """A data file has one vector at most, new deletes by position are vectors, and each row has an id of its own."""
    vectors = Counter(vector.data_path for entry in live if (vector := find_vector(entry.data_file)))
    if doubled := [path for path, count in vectors.items() if count > 1]:
        return f"two vectors of {doubled}"
    for entry in live:
        file = entry.data_file
        is_new = entry.snapshot_id == snapshot_id and file.content is DataFileContent.POSITION_DELETES
        if is_new and file.file_format is not FileFormat.PUFFIN:
            return f"{file.file_path} is a new position delete file in version 3"
    data = (entry.data_file for entry in live if entry.data_file.content is DataFileContent.DATA)
    return find_problem_of_ids((file.file_path, first_row_id_of(file), file.record_count) for file in data)
