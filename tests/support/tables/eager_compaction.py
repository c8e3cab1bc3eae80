"""A table with updates whose small files and deleted rows are compacted at once."""

from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec

from support.bindings import PATH
from support.rows.updated_rows import make_table
from support.tables.altered_tables import entries
from support.tables.compacting import EAGER


def make_eager(catalog: Catalog, spec: PartitionSpec | None = None) -> None:
    make_table(catalog, spec)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)


def files(catalog: Catalog, content: DataFileContent = DataFileContent.DATA) -> list[str]:
    return [entry.data_file.file_path for entry in entries(catalog) if entry.data_file.content is content]


def delete_files(catalog: Catalog) -> list[str]:
    return files(catalog, DataFileContent.POSITION_DELETES)


def stored(catalog: Catalog) -> set[str]:
    """The names of all Parquet files beside the table."""
    directory = Path(catalog.load_table(PATH).location().removeprefix("file://"))
    return {file.name for file in directory.rglob("*.parquet")}
