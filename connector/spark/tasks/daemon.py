"""The parent of Spark's Python workers. It imports all that a worker needs, once, before workers are forked.

Spark puts pyspark.zip and its jars on the Python path, where each task would read the zip's directory again (50 ms).
They are taken off, since PySpark is installed.
"""

import gc
import sys

sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
for path in [path for path in sys.path_importer_cache if path.endswith((".zip", ".jar"))]:
    del sys.path_importer_cache[path]

import pyarrow as pa  # noqa: E402  (the path had to be mended first)
from pyspark import daemon  # noqa: E402

from connector.host import late_imports, signals  # noqa: E402

late_imports.import_late()

from connector.spark.tasks import write_task  # noqa: E402

if __name__ == "__main__":
    pa.set_cpu_count(1)  # Spark runs as many workers as there are cores
    assert write_task  # imported so that workers are forked with it
    # Rows are many short-lived objects without cycles: looking for cycles among them takes a sixth of the decoding.
    gc.freeze()
    gc.disable()
    # The daemon cannot say which signal has ended a worker.
    daemon.worker_main = signals.announce_sigterm(daemon.worker_main)
    daemon.manager()
