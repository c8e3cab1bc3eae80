"""Reads Iceberg tables with an engine, in a process that does not import the connector and the tests.

    read_with.py ENGINE {metadata file} {Arrow file to write} [...]

It prints a line of JSON for each table: null, or why the engine refused it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc


def with_clickhouse(metadata: Path) -> pa.Table:
    from chdb import session

    directory = metadata.parents[1]
    query = (
        f"SELECT * FROM icebergLocal('{directory}', SETTINGS iceberg_metadata_file_path = 'metadata/{metadata.name}')"
    )
    # Its strings are bytes. A session does not recover from an error.
    answer = session.Session().query(f"{query} SETTINGS output_format_arrow_string_as_string = 0", "ArrowStream")
    return ipc.open_stream(answer.bytes()).read_all()


def with_daft(metadata: Path) -> pa.Table:
    import daft
    from pyiceberg.table import StaticTable

    return daft.read_iceberg(StaticTable.from_metadata(str(metadata))).to_arrow()


def with_pyiceberg(metadata: Path) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(metadata)).scan().to_arrow()


ENGINES: dict[str, Callable[[Path], pa.Table]] = {
    "clickhouse": with_clickhouse,
    "daft": with_daft,
    "pyiceberg": with_pyiceberg,
}


def main(engine: str, *paths: str) -> None:
    for metadata, target in zip(paths[::2], paths[1::2], strict=True):
        try:
            rows = ENGINES[engine](Path(metadata))
        except Exception as error:  # noqa: BLE001
            print(json.dumps(str(error)), flush=True)
            continue
        with ipc.new_file(target, rows.schema) as file:
            file.write_table(rows)
        print("null", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
