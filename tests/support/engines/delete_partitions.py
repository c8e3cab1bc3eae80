"""Whether delete files have the partitions of the data files that they are for. Readers apply them only then."""

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table

from connector.encoding.live_rows.position_deletes import group_by_file, read_position_deletes
from connector.iceberg.metadata.manifests import manifests_of


def find_misplaced(table: Table) -> list[str]:
    """The data files with deletes that are of another partition or spec, as far as they are live."""
    entries = [
        (entry.data_file, (int(entry.data_file.spec_id), str(entry.data_file.partition)))
        for manifest in manifests_of(table, table.current_snapshot())
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    data = {file.file_path: partition for file, partition in entries if file.content is DataFileContent.DATA}
    return [
        f"{path} of {data[path]} has deletes of {partition}"
        for file, partition in entries
        if file.content is DataFileContent.POSITION_DELETES and file.file_format is FileFormat.PARQUET
        for path, _ in group_by_file(read_position_deletes(table.io, file.file_path))
        if path in data and data[path] != partition
    ]
