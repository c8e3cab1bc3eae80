"""The rows that a transaction replaces: those of the keys that were loaded, and then stored with `exists`.

A runtime may load a key and not store it: once a capture has begun to read its source again, it drops documents from
before. The rows of such a key stay.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.encoding.lines.key_digest import KeyDigest, digest_hashes, hash_keys_table
from connector.encoding.lines.keys_tables import KEY, keys_of_texts
from connector.encoding.search.located_rows import read_located, write_located
from connector.encoding.search.row_search import SearchedFile, search
from connector.encoding.search.searched_keys import SearchedKeys
from connector.host.errors import RetryableError
from connector.host.logs import Event, fields
from connector.model.binding import Binding
from connector.model.state import DataFile, LocatedRowsFile
from connector.spark.blocks.transaction_files import StoredObject, TableLayout
from connector.spark.jobs.write_job import Written
from connector.storage.file_io import files_of
from protocol.protocol_error import ProtocolError

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1 << 16  # keys that are parsed at once


def leave_out_unstored(
    layout: TableLayout, located: LocatedRowsFile, written: Written, new_location: Callable[[TableLayout], str]
) -> tuple[LocatedRowsFile, KeyDigest]:
    """Return those of the located rows whose keys were stored with `exists`, durable, and the digest of these keys. If
    other keys were stored with `exists`, too, all rows are returned: the transaction will fail. `new_location` returns
    a location for another object of located rows.

    Raises ProtocolError if a located key was stored without `exists`, or loaded twice, and RetryableError if the key
    columns do not tell which keys were stored.
    """
    binding = layout.binding
    stored = written.existing_keys.get(binding.index, ())
    if not located.location:
        return located, KeyDigest()
    found = read_located(layout.io, located.location)
    texts = found.read_texts()
    keys = texts.unique()
    hashes = np.concatenate([hash_keys_table(part) for part in _parse(binding, keys)])
    stored_hashes = np.concatenate([*stored, hashes[:0]])
    is_stored = np.isin(hashes, stored_hashes)
    if is_stored.sum() > len(stored_hashes) and np.isin(stored_hashes, hashes).all():
        raise RetryableError(
            f"table {binding.table}: the runtime loaded keys that have the same values in the key columns, and did not "
            "store all of them. The connector cannot tell whose rows to replace. Nothing of this transaction has "
            "become visible, and the next start tries again."
        )
    replaced = digest_hashes([hashes[is_stored]])
    if replaced != digest_hashes(stored):
        return located, replaced
    unstored = keys.filter(pa.array(~is_stored))
    if not len(unstored):
        raise ProtocolError(
            f"table {binding.table}: the runtime loaded a key more than once. Nothing of this transaction has become "
            "visible. A runtime of Flow does not do this: report it."
        )
    _check_not_added(layout, unstored, files_of(layout.io, written.files.get(binding.index, ())))
    log.info(
        "table %s: %d key(s) were loaded and not stored. Their rows stay as they are",
        binding.table,
        len(unstored),
        extra=fields(Event.UNSTORED, table=binding.table, keys=len(unstored)),
    )
    rows = found.rows.append_column(KEY, texts).filter(pc.is_in(texts, keys.filter(pa.array(is_stored))))
    location = new_location(layout) if rows.num_rows else None
    if location:
        write_located(layout.io, location, [rows], found.updates)
    StoredObject(located.location).remove(layout.io, "located rows")
    return LocatedRowsFile(location, rows.num_rows, located.snapshot_id), replaced


def _check_not_added(layout: TableLayout, unstored: pa.Array, files: Sequence[DataFile]) -> None:
    """Raise ProtocolError if a new row has one of these keys. It would be the second row of the key."""
    binding = layout.binding
    assert binding.updates, "only bindings that update rows have Loads"
    keys = SearchedKeys(
        pa.concat_tables(_parse(binding, unstored)), binding.updates, [each.name for each in binding.keys]
    )
    for file in files:
        if any(search(layout.io, SearchedFile(file.path, file.size), keys, with_documents=False)):
            raise ProtocolError(
                f"table {binding.table}: the runtime loaded a document, and stored its next version without `exists`. "
                "Nothing of this transaction has become visible. A runtime of Flow does not do this: report it."
            )


def _parse(binding: Binding, keys: pa.Array) -> Iterator[pa.Table]:
    """Yield keys tables of these JSON arrays."""
    assert binding.updates, "only bindings that update rows have Loads"
    types = [column.type for column in binding.keys]
    for begin in range(0, len(keys), _AT_ONCE):
        yield keys_of_texts(keys.slice(begin, _AT_ONCE), binding.updates.parts, types)
