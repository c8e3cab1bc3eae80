"""How Spark's Python workers allocate memory."""

import os
import subprocess
import sys
from typing import Final

from connector.spark.jvm.jvm_command import WORKER_ALLOCATION

# As for each of many small files in S3: a large buffer for a while, and something that stays.
MANY_BUFFERS: Final = r"""
import re
import numpy as np, pyarrow as pa

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])

kept, before = [], peak()
for _ in range(20):
    buffer = pa.allocate_buffer(10 << 20)
    np.frombuffer(buffer, np.uint8)[:] = 1
    kept.append(bytearray(1 << 20))
    del buffer
print(pa.default_memory_pool().backend_name, (peak() - before) >> 10)
"""


def test_what_arrow_has_given_back_is_taken_again() -> None:
    environment = {**os.environ, **WORKER_ALLOCATION}
    command = [sys.executable, "-c", MANY_BUFFERS]
    pool, grown = subprocess.run(command, env=environment, check=True, capture_output=True).stdout.split()

    assert pool.decode() == WORKER_ALLOCATION["ARROW_DEFAULT_MEMORY_POOL"]
    assert int(grown) < 100, f"{int(grown)} MB for 10 at a time"
