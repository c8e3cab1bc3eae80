"""Data files to search, and what a search in them must find: a model that reads every row."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import PrimitiveType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.live_rows.lineage_columns import ROW_ID, SEQUENCE_NUMBER
from connector.encoding.live_rows.position_deletes import write_position_deletes
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.encoding.values.column_types import arrow_type_of
from connector.model.binding import KeyPart, Updates

IO = PyArrowFileIO()
DOCUMENT_ID = 99
FoundRow = tuple[str, str, int, str | None]  # key, path, position, document


@dataclass
class SearchedTable:
    """A table whose documents have their keys at /0, /1, …; the key columns have the ids 10, 11, …"""

    directory: Path
    types: Sequence[PrimitiveType]
    is_exact: bool = True
    numbers: Any = field(default_factory=itertools.count)

    @property
    def updates(self) -> Updates:
        parts = [KeyPart(10 + place, f"/{place}", is_exact=self.is_exact) for place in range(len(self.types))]
        return Updates(tuple(parts), DOCUMENT_ID)

    @property
    def key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.types))]

    def write(self, keys: Sequence[str], row_group_size: int = 100, **columns: pa.Array) -> str:
        """Write a file with a row for each key, a JSON array. `columns` take the place of those that are usual."""
        documents = [
            json.dumps({str(place): part for place, part in enumerate(json.loads(key))} | {"number": number})
            for number, key in enumerate(keys)
        ]
        table = keys_of_texts(pa.array(keys, pa.string()), self.updates.parts, self.types)
        assert table["key"].to_pylist() == list(keys), "every key fits"
        arrays = {f"k{place}": table.column(place) for place in range(len(self.types))}
        arrays |= {"flow_document": pa.array(documents, pa.string())} | columns
        ids = {"flow_document": DOCUMENT_ID, "_row_id": ROW_ID, "_last_updated_sequence_number": SEQUENCE_NUMBER} | {
            f"k{place}": 10 + place for place in range(len(self.types))
        }
        fields = [
            pa.field(name, array.type, metadata={"PARQUET:field_id": str(ids.get(name, 1000))})
            for name, array in arrays.items()
            if array is not None
        ]
        path = f"file://{self.directory}/{next(self.numbers)}.parquet"
        present = [array for array in arrays.values() if array is not None]
        keys_only = [name for name, array in arrays.items() if array is not None and name != "flow_document"]
        rows = pa.table(present, schema=pa.schema(fields))
        pq.write_table(rows, path[7:], row_group_size=row_group_size, use_dictionary=keys_only)
        return path

    def delete(self, rows: Sequence[tuple[str, int]]) -> str:
        """Write a position delete file."""
        location = f"file://{self.directory}/{next(self.numbers)}-deletes.parquet"
        paths, positions = zip(*rows, strict=True)
        write_position_deletes(IO, location, pa.array(paths), pa.array(positions, pa.int64()))
        return location

    def keys(self, keys: Sequence[str]) -> pa.Table:
        return keys_of_texts(pa.array(keys, pa.string()), self.updates.parts, self.types)

    def find(
        self, files: Sequence[SearchedFile], keys: Sequence[str], *, with_documents: bool = True
    ) -> list[FoundRow]:
        """Search the files, and return what is found in its order."""
        table = self.keys(keys)
        searched = SearchedKeys(table, self.updates, self.key_names)
        found: list[FoundRow] = []
        for file in files:
            for rows in search(IO, file, searched, with_documents=with_documents):
                texts = table["key"].take(pa.array(rows.keys)).to_pylist()
                documents = [None] * len(texts) if rows.documents is None else rows.documents.to_pylist()
                paths = [file.path] * len(texts)
                found += zip(texts, paths, rows.positions.tolist(), documents, strict=True)
        return found

    def expect(
        self,
        rows: Mapping[str, Sequence[str]],
        deleted: Sequence[tuple[str, int]],
        keys: Sequence[str],
        *,
        with_documents: bool = True,
    ) -> list[FoundRow]:
        """Return what a search must find. `rows` are the keys of each file."""
        found: list[FoundRow] = []
        for path, of_file in rows.items():
            column = pq.read_table(path[7:])["flow_document"].to_pylist() if with_documents else [None] * len(of_file)
            for position, (key, document) in enumerate(zip(of_file, column, strict=True)):
                if (path, position) not in deleted:
                    found += [(each, path, position, document) for each in keys if _is_same(each, key)]
        return found

    def arrow_type(self, place: int) -> pa.DataType:
        return arrow_type_of(self.types[place])


def _is_same(one: str, other: str) -> bool:
    """Whether two keys are the same to the runtime."""
    pairs = list(itertools.zip_longest(json.loads(one), json.loads(other)))
    return all(a == b and isinstance(a, bool) == isinstance(b, bool) for a, b in pairs)
