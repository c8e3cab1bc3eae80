"""Manifests and manifest lists are PyIceberg's, however little of the work is done for each."""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import manifest as iceberg
from pyiceberg.avro.decoder import StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import SYNC_SIZE, AvroFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from connector.iceberg.metadata import avro_files, manifests
from connector.iceberg.metadata.avro_files import AVRO_COMPRESSION, BLOCK_SIZE
from connector.storage.file_io import WrittenFile
from support.snapshots import check_text

IO = PyArrowFileIO()
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType()))
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=1)
NO_ROW_ID = None  # manifest lists of version 3 have one more field
UNPARTITIONED = PartitionSpec(spec_id=0)


@pytest.mark.parametrize(("spec", "partition"), [(UNPARTITIONED, Record()), (BY_REGION, Record("north"))])
def test_a_manifest_is_the_one_that_pyiceberg_writes(spec: PartitionSpec, partition: Record, tmp_path: Path) -> None:
    def written(name: str, kind: Callable[..., Any]) -> ManifestFile:
        file = IO.new_output(f"{tmp_path}/{name}")
        with kind(spec, SCHEMA, file, 7) as writer:
            writer.add_entry(entry(partition))
        found: ManifestFile = writer.to_manifest_file()
        return found

    of_pyiceberg = partial(iceberg.ManifestWriterV2, avro_compression=AVRO_COMPRESSION)
    ours, theirs = written("ours", manifests.ManifestWriter), written("theirs", of_pyiceberg)
    expected = header(tmp_path / "theirs")
    # Iceberg demands ints. PyIceberg writes longs, which Java does not read.
    of_equality_ids = '{"type": "array", "element-id": 136, "items": "%s"}'
    assert of_equality_ids % "long" in expected["avro.schema"]
    expected["avro.schema"] = expected["avro.schema"].replace(of_equality_ids % "long", of_equality_ids % "int")
    assert header(tmp_path / "ours") == expected
    assert fields(*entries(ours)) == fields(*entries(theirs))
    assert entries(ours)[0].data_file.partition == partition


@pytest.mark.parametrize("name", ["größe_trunc_1", "日付", "a b", "\U0001f600"])
def test_the_names_of_partition_fields_are_those_that_avro_allows(name: str, tmp_path: Path) -> None:
    """DuckDB ends the process of its caller when it finds another name."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), name), spec_id=1)
    with manifests.ManifestWriter(spec, SCHEMA, IO.new_output(f"{tmp_path}/manifest"), 7) as writer:
        writer.add_entry(entry(Record("north")))
    names = re.findall(r'"name": "([^"]*)"', header(tmp_path / "manifest")["avro.schema"])
    assert [each for each in names if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", each)] == []
    assert entries(writer.to_manifest_file())[0].data_file.partition == Record("north")


def test_a_manifest_of_delete_files_says_so_in_its_header_and_in_the_manifest_list(tmp_path: Path) -> None:
    with manifests.DeleteManifestWriter(UNPARTITIONED, SCHEMA, IO.new_output(f"{tmp_path}/manifest"), 7) as writer:
        writer.add_entry(entry(Record()))
    assert header(tmp_path / "manifest")["content"] == "deletes"
    assert writer.to_manifest_file().content is iceberg.ManifestContent.DELETES


def test_a_manifest_list_is_the_one_that_pyiceberg_writes(tmp_path: Path) -> None:
    of_pyiceberg = partial(iceberg.ManifestListWriterV2, compression=AVRO_COMPRESSION)
    kinds: dict[str, Callable[..., Any]] = {"ours": manifests.ManifestListWriter, "theirs": of_pyiceberg}
    for name, kind in kinds.items():
        with kind(IO.new_output(f"{tmp_path}/{name}"), 7, 6, 3) as writer:
            writer.add_manifests([listed()])
    assert header(tmp_path / "ours") == header(tmp_path / "theirs")
    [ours], [theirs] = (list(iceberg.read_manifest_list(IO.new_input(f"{tmp_path}/{n}"))) for n in ("ours", "theirs"))
    assert fields(ours) == fields(theirs)
    assert ours.sequence_number == 3


@pytest.mark.parametrize("entries_before", [0, 1])
def test_an_error_among_the_entries_stays_what_it_is_and_leaves_no_manifest(
    entries_before: int, tmp_path: Path
) -> None:
    def write() -> None:
        file = WrittenFile(IO, f"{tmp_path}/manifest")
        with manifests.ManifestWriter(UNPARTITIONED, SCHEMA, file, 7) as writer:
            for _ in range(entries_before):
                writer.add_entry(entry(Record()))
            raise EOFError("the source ends early")

    with pytest.raises(EOFError, match="the source ends early"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_error_among_the_manifests_leaves_no_list(tmp_path: Path) -> None:
    def write() -> None:
        file = WrittenFile(IO, f"{tmp_path}/list")
        with manifests.ManifestListWriter(file, 7, 6, 3) as writer:
            writer.add_manifests([listed()])
            raise EOFError

    with pytest.raises(EOFError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_manifest_lists_of_several_writers_are_read_by_turns_as_pyiceberg_reads_them(tmp_path: Path) -> None:
    of_version_1 = iceberg.ManifestListWriterV1(IO.new_output(f"{tmp_path}/1"), 7, 6, AVRO_COMPRESSION)
    of_version_2 = iceberg.ManifestListWriterV2(IO.new_output(f"{tmp_path}/2"), 7, 6, 3, AVRO_COMPRESSION)
    for writer in (of_version_1, of_version_2):
        with writer:
            writer.add_manifests([listed(), listed()])
    for name in ("1", "2", "1"):
        file = IO.new_input(f"{tmp_path}/{name}")
        ours, theirs = manifests.read_manifest_list(file), iceberg.read_manifest_list(file)
        assert [fields(manifest) for manifest in ours] == [[*fields(manifest), NO_ROW_ID] for manifest in theirs]


def test_manifests_of_several_partition_types_are_read_by_turns_as_pyiceberg_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Reader] = []

    def note(*about: Any) -> Reader:
        made.append(resolve_reader(*about))
        return made[-1]

    monkeypatch.setattr(manifests, "resolve_reader", note)
    manifests._find_entry_reader.cache_clear()
    written: list[ManifestFile] = []
    for spec, partition in ((UNPARTITIONED, Record()), (BY_REGION, Record("north"))):
        file = IO.new_output(f"{tmp_path}/{spec.spec_id}")
        with manifests.ManifestWriter(spec, SCHEMA, file, 7) as writer:
            writer.add_entry(entry(partition))
        written.append(writer.to_manifest_file())
        written[-1].sequence_number = 3
    for manifest in (*written, *written):
        ours, theirs = manifests.read_entries(IO, manifest), entries(manifest)
        assert [as_of_version_2(each) for each in ours] == [as_of_version_2(each) for each in theirs]
    assert len(made) == 2, "one reader for each partition type"


def test_a_manifest_that_is_cut_short_is_damaged_wherever_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit would leave out the data files that the rest lists."""
    monkeypatch.setattr(avro_files, "BLOCK_SIZE", 1)
    file = tmp_path / "manifest"
    manifest = written_manifest(file, entry(Record()), entry(Record()))
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidMetadataError, match=rf"{file} is damaged: ") as error:
            manifests.read_entries(IO, manifest)
    numbers = {f"has {size} bytes instead of {size + 1}": "has 1,000 bytes instead of 1,001"}
    check_text("commit_errors", "a manifest is cut short", str(error.value), {str(file): "…/manifest.avro"} | numbers)


def test_a_manifest_list_that_is_cut_short_is_damaged_wherever_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "list"
    with manifests.ManifestListWriter(IO.new_output(str(file)), 7, 6, 3) as writer:
        writer.add_manifests([listed(), listed()])
    whole = file.read_bytes()
    only_header = whole.index(whole[-SYNC_SIZE:]) + SYNC_SIZE  # the same as a list of no manifests
    for size in {*range(len(whole))} - {only_header}:
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidMetadataError, match=rf"{file} is damaged: "):
            list(manifests.read_manifest_list(IO.new_input(str(file))))


@pytest.mark.parametrize("count", [0, -1, 1, 3])
def test_a_block_with_another_number_of_records_is_damaged(count: int, tmp_path: Path) -> None:
    file = tmp_path / "list"
    with manifests.ManifestListWriter(IO.new_output(str(file)), 7, 6, 3) as writer:
        writer.add_manifests([listed(), listed()])
    content = file.read_bytes()
    begin = content.index(content[-SYNC_SIZE:]) + SYNC_SIZE
    zigzag = 2 * count if count >= 0 else -2 * count - 1
    file.write_bytes(content[:begin] + bytes([zigzag]) + content[begin + 1 :])
    with pytest.raises(InvalidMetadataError, match="is damaged: ") as error:
        list(manifests.read_manifest_list(IO.new_input(str(file))))
    if count == 1:
        check_text(
            "commit_errors", "a block with another number of records", str(error.value), {str(file): "…/list.avro"}
        )


def test_damage_between_the_blocks_is_noticed_before_their_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_files, "BLOCK_SIZE", 1)
    file = tmp_path / "manifest"
    manifest = written_manifest(file, entry(Record()), entry(Record()))
    content = file.read_bytes()
    for place in range(len(content) - SYNC_SIZE, len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with pytest.raises(InvalidMetadataError) as error:
            manifests.read_entries(IO, manifest)
        check_text(
            "commit_errors", "damage between the blocks of a manifest", str(error.value), {str(file): "…/manifest.avro"}
        )


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_manifest_that_another_engine_has_compressed_with_snappy_is_read(is_damaged: bool, tmp_path: Path) -> None:
    file = tmp_path / "manifest"
    manifest = written_manifest(file, *(entry(Record()) for _ in range(300)))
    expected = [as_of_version_2(each) for each in manifests.read_entries(IO, manifest)]
    file.write_bytes(compress_with_snappy(file.read_bytes(), b"\x7f" if is_damaged else b""))
    manifest[1] = file.stat().st_size  # its length
    if is_damaged:
        with pytest.raises(InvalidMetadataError) as error:
            manifests.read_entries(IO, manifest)
        check_text("commit_errors", "a block with another checksum", str(error.value), {str(file): "…/manifest.avro"})
    else:
        assert [as_of_version_2(each) for each in manifests.read_entries(IO, manifest)] == expected


def compress_with_snappy(content: bytes, changed: bytes) -> bytes:
    """Each block of a file, and behind it the checksum, also of the `changed` bytes."""
    compressed = BytesIO()
    encoder = BinaryEncoder(compressed)
    encoder.write(content[: begin_of_blocks(content)].replace(b"\x0edeflate", b"\x0csnappy"))
    for count, records in blocks_of(content):
        encoder.write_int(count)
        checksum = zlib.crc32(records + changed).to_bytes(4)
        encoder.write_bytes(pa.compress(records, "snappy", asbytes=True) + checksum)
        encoder.write(content[-SYNC_SIZE:])
    return compressed.getvalue()


def begin_of_blocks(content: bytes) -> int:
    return content.index(content[-SYNC_SIZE:]) + SYNC_SIZE


def blocks_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The number of records of each block, and what they are encoded as."""
    blocks = StreamingBinaryDecoder(content[(begin := begin_of_blocks(content)) :])
    while blocks.tell() < len(content) - begin:
        yield blocks.read_int(), zlib.decompress(blocks.read_bytes(), -zlib.MAX_WBITS)
        assert blocks.read(SYNC_SIZE) == content[-SYNC_SIZE:]


def test_entries_share_blocks_which_are_limited_so_that_a_reader_need_not_hold_them_all(tmp_path: Path) -> None:
    """With a block for each entry, manifests would be about twice as large."""
    added = [entry(Record()) for _ in range(3_000)]
    manifest = written_manifest(tmp_path / "manifest", *added)
    blocks = [*blocks_of((tmp_path / "manifest").read_bytes())]
    assert len(blocks) > 2
    assert sum(count for count, _ in blocks) == len(added)
    largest = max(len(records) // count for count, records in blocks) + 1
    assert all(BLOCK_SIZE <= len(records) < BLOCK_SIZE + largest for _, records in blocks[:-1])
    assert manifest.manifest_length == (tmp_path / "manifest").stat().st_size
    assert manifest.added_files_count == len(added)
    ours, theirs = manifests.read_entries(IO, manifest), entries(manifest)
    assert [as_of_version_2(each) for each in ours] == [as_of_version_2(each) for each in theirs]
    assert len(ours) == len(added)


def test_a_manifest_list_is_one_block(tmp_path: Path) -> None:
    """Nothing says how long it is: cut short between two blocks, it would look like a whole one."""
    file = tmp_path / "list"
    with manifests.ManifestListWriter(IO.new_output(str(file)), 7, 6, 3) as writer:
        writer.add_manifests([listed()] * 2_000)
    [(count, records)] = blocks_of(file.read_bytes())
    assert count == 2_000
    assert len(records) > BLOCK_SIZE


def test_pyiceberg_still_takes_a_file_that_is_cut_short_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it does not, the connector need not divide files into blocks itself."""
    monkeypatch.setattr(avro_files, "BLOCK_SIZE", 1)
    file = tmp_path / "manifest"
    manifest = written_manifest(file, entry(Record()), entry(Record()))
    content = file.read_bytes()
    first_block = content.index(content[-SYNC_SIZE:]) + SYNC_SIZE
    end = content.index(content[-SYNC_SIZE:], first_block) + SYNC_SIZE
    file.write_bytes(content[:end])
    assert len(entries(manifest)) == 1


def test_pyiceberg_still_rounds_doubles() -> None:
    """Once it does not, the connector need not replace how doubles are read."""
    assert new_decoder(struct.pack("<d", 0.1)).read_double() != 0.1


def written_manifest(file: Path, *added: ManifestEntry) -> ManifestFile:
    with manifests.ManifestWriter(UNPARTITIONED, SCHEMA, IO.new_output(str(file)), 7) as writer:
        for each in added:
            writer.add_entry(each)
    manifest = writer.to_manifest_file()
    manifest.sequence_number = 3
    return manifest


def entry(partition: Record) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://bucket/data.parquet",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=2,
        file_size_in_bytes=100,
        column_sizes={1: 10},
        lower_bounds={1: b"\1"},
        split_offsets=[4],
    )
    file.spec_id = 0
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)


def listed() -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path="s3://bucket/manifest.avro",
        manifest_length=1000,
        partition_spec_id=0,
        content=iceberg.ManifestContent.DATA,
        sequence_number=iceberg.UNASSIGNED_SEQ,
        min_sequence_number=iceberg.UNASSIGNED_SEQ,
        added_snapshot_id=7,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=2,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[],
        key_metadata=None,
    )


def header(path: Path) -> dict[str, str]:
    with AvroFile[Record](IO.new_input(str(path))) as file:
        return file.header.meta


def entries(manifest: ManifestFile) -> list[ManifestEntry]:
    return manifest.fetch_manifest_entry(IO)


def as_of_version_2(of: ManifestEntry) -> list[Any]:
    """The fields that PyIceberg reads."""
    names = [field.name for field in iceberg.DATA_FILE_TYPE[2].fields]
    file = [fields(value) if isinstance(value := of.data_file[place], Record) else value for place in range(len(names))]
    return [of.status, of.snapshot_id, of.sequence_number, of.file_sequence_number, *file]


def fields(*records: Record) -> list[Any]:
    """All of them: PyIceberg takes manifests for equal that have the same path, and files too."""
    return [
        fields(value) if isinstance(value, Record) else value
        for record in records
        for value in (record[place] for place in range(len(record)))
    ]
