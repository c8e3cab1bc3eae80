"""The ids that updated rows keep: a Load has found them by the keys, and the Stores of these keys get them.

A table with the keys and the ids goes from the driver to the tasks. Rows without an id there inherit new ones from the
table's metadata, like all new rows.
"""

import numpy as np
import pyarrow as pa

from connector.encoding.live_rows.lineage_columns import NO_ROW_ID, ROW_ID_FIELD
from connector.encoding.search.document_keys import document_key
from connector.encoding.search.searched_keys import Keys
from connector.encoding.values.column_types import column_id
from connector.model.binding import Updates


class RowIdsOfKeys:
    """The row ids of all loaded keys of one binding and one transaction."""

    def __init__(self, table: pa.Table, updates: Updates) -> None:
        """`table` is a keys table with a column of ids, which may be NO_ROW_ID."""
        self._ids = table[ROW_ID_FIELD.name].to_numpy()
        self._keys = Keys(table, updates)
        self.size: int = table.nbytes + self._keys.size  # in memory

    def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows with a column of ids, which is null for new rows."""
        updates = self._keys.updates
        places = {column_id(field): place for place, field in enumerate(batch.schema)}
        columns = [
            batch.column(places[part.column_id]).cast(arrow_type)
            for part, arrow_type in zip(updates.parts, self._keys.types, strict=True)
        ]
        rows, keys = self._keys.find(columns)
        if not updates.is_exact:
            documents = batch.column(places[updates.document_id]).take(pa.array(rows)).to_pylist()
            are_equal = self._keys.match_documents(keys, [document_key(each, updates.parts) for each in documents])
            rows, keys = rows[are_equal], keys[are_equal]
        ids = np.full(batch.num_rows, NO_ROW_ID, np.int64)
        ids[rows] = self._ids[keys]
        return batch.append_column(ROW_ID_FIELD, pa.array(ids, mask=ids == NO_ROW_ID))
