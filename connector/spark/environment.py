"""What Spark's processes inherit of this process's environment: nothing that signs in anywhere. A task gets the keys
for its tables' files, and no others."""

import os
import re
from typing import Final

SIGN_IN: Final = re.compile(
    r"(?i)secret|password|pgpass|token|credential|(access|account|private|storage)_?key|connection_string"
    r"|^AWS_PROFILE$|^PYICEBERG_CATALOG__"
)
NEEDED: Final = ("HADOOP_",)  # for directories in HDFS, such as where its tickets are


def inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(NEEDED) or not SIGN_IN.search(name)}
