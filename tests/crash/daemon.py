"""The parent of Spark's Python workers, altered as the driver is."""

import os
import runpy

from crash import storage
from crash.faults import DEFECT

if __name__ == "__main__":
    storage.guard()
    if DEFECT in os.environ:
        from crash import defects  # which imports half the connector: later than a worker of the connector's own would

        defects.plant()
    runpy.run_module("connector.spark.daemon", run_name="__main__")
