"""PyIceberg's private parts are known: which ones the connector uses, and that a new version has not changed them."""

import ast
import re
from typing import Final

import pytest

from support.private_pyiceberg import described, uses, uses_of
from support.repository import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "pyiceberg.md"
FIRST_CELL: Final = re.compile(r"^\| (`[^|]*) \|", re.MULTILINE)
NAME: Final = re.compile(r"`([\w.]+)`")
SQL: Final = "pyiceberg.catalog.sql.SqlCatalog"

# A digest of the source of each part; of an attribute its annotation.
PARTS: Final = {
    "pyiceberg.avro.codecs.snappy_codec.SnappyCodec": "cf1ecbc27af7",
    "pyiceberg.avro.decoder.StreamingBinaryDecoder": "63f2a8f233d2",
    "pyiceberg.avro.decoder.new_decoder": "e75df0d44f08",
    "pyiceberg.avro.file.AvroFileHeader": "b48a0d8ceaf2",
    "pyiceberg.avro.file.AvroOutputFile.__init__": "fc1734cc0007",
    "pyiceberg.avro.file.AvroOutputFile.__exit__": "cde734b68658",
    "pyiceberg.avro.file.AvroOutputFile._write_header": "3c5edb91139b",
    "pyiceberg.avro.file.AvroOutputFile.write_block": "020a3fc16833",
    "pyiceberg.avro.reader.DoubleReader": "ac007029b81f",
    "pyiceberg.avro.resolver.construct_reader": "a448c6bef4e3",
    "pyiceberg.avro.resolver.construct_writer": "bb01812a86c1",
    "pyiceberg.avro.resolver.resolve_reader": "b7deab6d5876",
    "pyiceberg.catalog.Catalog._delete_old_metadata": "56aad640702f",
    "pyiceberg.catalog.Catalog._load_file_io": "de5e4fac1a01",
    "pyiceberg.catalog.Catalog.commit_table": "c7238288fd6c",
    "pyiceberg.catalog.Catalog.create_table": "3d98b84090de",
    "pyiceberg.catalog.Catalog.load_table": "519d08012445",
    "pyiceberg.catalog.MetastoreCatalog._update_and_stage_table": "b25ba8da5879",
    "pyiceberg.catalog.MetastoreCatalog._write_metadata": "7548243aaa54",
    "pyiceberg.catalog.glue.GlueCatalog.__init__": "4508131c3c38",
    "pyiceberg.catalog.glue.GlueCatalog._convert_glue_to_iceberg": "dd462fda0830",
    "pyiceberg.catalog.glue.GlueCatalog._get_glue_table": "8919ba7ebdc0",
    "pyiceberg.catalog.glue.GlueCatalog._update_glue_table": "e086df03f384",
    "pyiceberg.catalog.glue.GlueCatalog.commit_table": "0af3376c2d2d",
    "pyiceberg.catalog.glue.GlueCatalog.create_table": "083c76a06527",
    "pyiceberg.catalog.glue.GlueCatalog.load_table": "eeede24278ac",
    "pyiceberg.catalog.glue.GlueCatalog.view_exists": "3a6b4f8eddde",
    "pyiceberg.catalog.hive.HiveCatalog.__init__": "baec745f2848",
    "pyiceberg.catalog.hive.HiveCatalog._client": "<class 'pyiceberg.catalog.hive._HiveClient'>",
    "pyiceberg.catalog.hive.HiveCatalog._convert_hive_into_iceberg": "82a7787603e3",
    "pyiceberg.catalog.hive.HiveCatalog._convert_iceberg_into_hive": "be99b352f536",
    "pyiceberg.catalog.hive.HiveCatalog._get_hive_table": "50aefb4e8834",
    "pyiceberg.catalog.hive.HiveCatalog.commit_table": "8db6d006af83",
    "pyiceberg.catalog.hive.HiveCatalog.create_table": "5211ca830b83",
    "pyiceberg.catalog.hive.HiveCatalog.view_exists": "3a6b4f8eddde",
    "pyiceberg.catalog.hive._construct_hive_storage_descriptor": "005aa3bc1c03",
    "pyiceberg.catalog.hive._construct_parameters": "2ff689bf9b28",
    "pyiceberg.catalog.rest.RestCatalog.__init__": "ea81c5a11aea",
    "pyiceberg.catalog.rest.RestCatalog._create_session": "7fea3cb8a0c6",
    "pyiceberg.catalog.rest.RestCatalog._fetch_config": "5aa8a51fd984",
    "pyiceberg.catalog.rest.RestCatalog._refresh_token": "df1776b86056",
    "pyiceberg.catalog.rest.RestCatalog._resolve_storage_credentials": "45692b035f69",
    "pyiceberg.catalog.rest.RestCatalog._response_to_staged_table": "0f7e76804170",
    "pyiceberg.catalog.rest.RestCatalog._response_to_table": "e491db0cf116",
    "pyiceberg.catalog.rest.RestCatalog.commit_table": "c61f75e70035",
    "pyiceberg.catalog.rest.RestCatalog.drop_table": "f8e1ef0d9791",
    "pyiceberg.catalog.rest.RestCatalog.view_exists": "5efa0ebe25ad",
    "pyiceberg.catalog.rest.TableResponse": "03cfebcac429",
    "pyiceberg.catalog.sql.IcebergTables": "2a982c791310",
    "pyiceberg.catalog.sql.SqlCatalog.__init__": "f559e597099c",
    "pyiceberg.catalog.sql.SqlCatalog._convert_orm_to_iceberg": "5e83a68ba91e",
    "pyiceberg.catalog.sql.SqlCatalog._iceberg_type_filter": "cbbf7f20d25e",
    "pyiceberg.catalog.sql.SqlCatalog.commit_table": "1c0fe19845ad",
    "pyiceberg.catalog.sql.SqlCatalog.create_table": "7b8c83350c0f",
    "pyiceberg.catalog.sql.SqlCatalog.load_table": "65705ca0cc6a",
    "pyiceberg.catalog.sql.SqlCatalog.view_exists": "3a6b4f8eddde",
    "pyiceberg.io.pyarrow.PyArrowFile.create": "93da59b27e53",
    "pyiceberg.io.pyarrow.PyArrowFile.open": "d29a3b004532",
    "pyiceberg.io.pyarrow.PyArrowFileIO.__init__": "a646a8150dcc",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_azure_fs": "2ca7f829909f",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_fs": "a6d467f7f9fc",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_gcs_fs": "663819d5fbb3",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_hdfs_fs": "20b1f069281d",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_local_fs": "5ac8242bdbe4",
    "pyiceberg.io.pyarrow.PyArrowFileIO._initialize_s3_fs": "ec698b7cc9e6",
    "pyiceberg.io.pyarrow.PyArrowFileIO.new_input": "e45423b9fb22",
    "pyiceberg.io.pyarrow.PyArrowFileIO.new_output": "e07f9cab7c9f",
    "pyiceberg.io.pyarrow.PyArrowFileIO.parse_location": "76d3eedf4c1d",
    "pyiceberg.io.pyarrow.PyArrowLocalFileSystem.open_output_stream": "b6afcc6241de",
    "pyiceberg.manifest.ManifestListWriter.__enter__": "14eb734cda94",
    "pyiceberg.manifest.ManifestListWriter.__exit__": "c2439a156b76",
    "pyiceberg.manifest.ManifestListWriter._meta": "dict[str, str]",
    "pyiceberg.manifest.ManifestListWriter._output_file": "OutputFile",
    "pyiceberg.manifest.ManifestListWriter._writer": "AvroOutputFile[ManifestFile]",
    "pyiceberg.manifest.ManifestListWriter.add_manifests": "f4ff78c46021",
    "pyiceberg.manifest.ManifestListWriterV2.__init__": "cef53e6c5218",
    "pyiceberg.manifest.ManifestWriter.__exit__": "aa7f59f8ea6e",
    "pyiceberg.manifest.ManifestWriter._output_file": "OutputFile",
    "pyiceberg.manifest.ManifestWriter._schema": "Schema",
    "pyiceberg.manifest.ManifestWriter._spec": "PartitionSpec",
    "pyiceberg.manifest.ManifestWriter.new_writer": "bde548b8c710",
    "pyiceberg.manifest.ManifestWriter.to_manifest_file": "78d4552f0170",
    "pyiceberg.manifest.ManifestWriterV2.__init__": "1643e516d936",
    "pyiceberg.manifest.ManifestWriterV2._meta": "5878cafa49d5",
    "pyiceberg.manifest.ManifestWriterV2.content": "b554148935f1",
    "pyiceberg.manifest.ManifestWriterV2.version": "53974495f766",
    "pyiceberg.manifest.data_file_with_partition": "a441d2432c51",
    "pyiceberg.manifest.manifest_entry_schema_with_data_file": "7758923a7d2e",
    "pyiceberg.table.metadata.new_table_metadata": "f3597be12b38",
    "pyiceberg.table.snapshots.update_snapshot_summaries": "d6ef18bed997",
    "pyiceberg.table.update.update_table_metadata": "cdfaa6553c2f",
    "pyiceberg.typedef.IcebergBaseModel.model_dump_json": "32d8ee5c499a",
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_pyiceberg_is_as_it_was_when_the_connector_was_written_against_it(name: str) -> None:
    try:
        found = described(name)
    except LookupError:
        found = "gone"
    assert found == PARTS[name], (
        f"PyIceberg has changed {name}. Read docs/pyiceberg.md and what is new in PyIceberg's source, correct the "
        f'connector where it has to follow, and then set "{name}" to "{found}" here.'
    )


def test_the_page_lists_each_part_that_the_connector_overrides_or_uses_and_no_other() -> None:
    private, overridden, _ = _listed()
    assert private | overridden == uses(), "left: what docs/pyiceberg.md lists; right: what the connector does"
    assert all(_is_private(name) for name in private)
    assert not any(_is_private(name) for name in overridden)


def test_each_part_on_the_page_is_watched() -> None:
    assert set().union(*_listed()) == set(PARTS)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from pyiceberg.manifest import _manifests", "pyiceberg.manifest._manifests"),
        ("def commit(table):\n    table._do_commit((), ())", "?._do_commit"),
        ("def commit(table):\n    getattr(table, '_do_commit')((), ())", "?._do_commit"),
        ("class SqlTables(SqlCatalog):\n    def _create_table_row(self): ...", f"{SQL}._create_table_row"),
        ("class SqlTables(SqlCatalog):\n    def close(self):\n        self._init_catalog()", f"{SQL}._init_catalog"),
        ("class SqlTables(SqlCatalog):\n    def drop_table(self, name): ...", f"{SQL}.drop_table"),
    ],
)
def test_a_part_that_a_module_begins_to_use_is_found(source: str, name: str) -> None:
    assert name in uses_of("connector.iceberg.catalogs.sql", ast.parse(source))


def test_a_private_part_of_the_connector_s_own_is_none_of_pyiceberg() -> None:
    source = "class SqlTables(SqlCatalog):\n    def _own(self):\n        return self._base"
    assert not set(uses_of("connector.iceberg.catalogs.sql", ast.parse(source)))


def test_the_page_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", PAGE.read_text()))
    assert named
    assert named <= {path.name for path in (REPOSITORY / "tests").rglob("test_*.py")}


def _listed() -> list[set[str]]:
    """Return the names in the first column of each section's table."""
    sections = PAGE.read_text().split("\n## ")[1:]
    return [
        {f"pyiceberg.{name}" for cell in FIRST_CELL.findall(text) for name in NAME.findall(cell)} for text in sections
    ]


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
