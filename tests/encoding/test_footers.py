"""The footers that a worker remembers take the memory that is planned for them."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from connector.encoding.parquet import file_columns
from support.repository import REPOSITORY

ROW_GROUPS, COLUMNS = 10, 50
# What the memory of a new process has grown by, in bytes. Footers are not in Arrow's memory, which Arrow counts itself.
GROWTH: Final = """
import ctypes, sys
from connector.encoding.parquet.file_columns import DataFileReader
from connector.storage.file_io import open_file_io

class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks mapped usmblks fsmblks used fordblks keepcost".split()]

library, io = ctypes.CDLL(None), open_file_io({})
library.mallinfo2.restype = Memory

def count_memory():
    counted = library.mallinfo2()
    return counted.used + counted.mapped

def read_footer(number):
    reader = DataFileReader(io, path, size)
    content = reader.stream
    reader.path = f"{path} {number}"
    assert reader.footer.num_row_groups
    reader.close()

path, size, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
read_footer(0)
before = count_memory()
for number in range(1, files):
    read_footer(number)
print(count_memory() - before)
"""


def test_the_footers_that_a_process_remembers_take_as_much_memory_as_is_planned_for_them(tmp_path: Path) -> None:
    file = tmp_path / "of many columns"
    rows = pa.table({f"column{number}": [f"value {number} {row}" for row in range(10)] for number in range(COLUMNS)})
    with pq.ParquetWriter(file, rows.schema) as writer:
        for _ in range(ROW_GROUPS):
            writer.write_table(rows)
    planned = file_columns._FOOTERS
    files = 3 * planned // (2 * pq.read_metadata(file).serialized_size)
    command = [sys.executable, "-c", GROWTH, str(file), str(file.stat().st_size), str(files)]
    grown = int(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)
    assert planned / 2 < grown < planned * 5 / 4
