"""Makes the class-data-sharing archive that halves the start of Spark's JVM.

The command is `python -m connector.spark.jvm.class_archive`. The JVM writes the archive when it exits by itself, from
the classes that it has loaded by then. Another JVM, which the archive does not fit, ignores it.
"""

import os
from pathlib import Path

from connector.host.tempdirs import make_directories
from connector.spark.jvm import jvm_command
from connector.spark.jvm.spark_session import Spark


def make_class_archive() -> Path:
    """Start Spark once, and return the archive that its JVM has written."""
    archive = jvm_command.locate_class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    # The JVM inherits this, and splits it at spaces outside of quotes.
    os.environ["JAVA_TOOL_OPTIONS"] = f'"-XX:ArchiveClassesAtExit={archive}"'
    with make_directories() as directories:
        spark = Spark({}, directories)
        spark.run(list).result()
        spark.stop()
    return archive


if __name__ == "__main__":
    print(make_class_archive())  # noqa: T201 - the Dockerfile reads where it is
