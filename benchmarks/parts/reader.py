"""A reader in a process of its own: counts the rows that fit each filter that it gets on stdin."""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.parts.servers import lake
from fixtures.collection import NAMESPACE
from support.engines.readers import duckdb_connection


def main() -> int:
    engine, directory = sys.argv[1], Path(sys.argv[2])
    with lake("local", directory) as place:
        table = place.catalog().load_table((NAMESPACE, "measurements"))
    if engine == "PyIceberg":
        for text in sys.stdin:
            print(table.scan(json.loads(text), selected_fields=("price",)).to_arrow().num_rows, flush=True)
        return 0
    with tempfile.TemporaryDirectory() as extensions, duckdb_connection(Path(extensions)) as duckdb:
        duckdb.execute("SET enable_external_file_cache = false")
        for text in sys.stdin:
            query = f"SELECT count(price) FROM iceberg_scan($1) WHERE {json.loads(text)}"
            [[found]] = duckdb.execute(query, [table.metadata_location]).fetchall()
            print(found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
