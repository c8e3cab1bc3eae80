"""The parent of Spark's Python workers, altered as the driver is."""

import runpy

from crash import storage, task_defects

if __name__ == "__main__":
    storage.guard()
    task_defects.plant()
    runpy.run_module("connector.spark.tasks.daemon", run_name="__main__")
