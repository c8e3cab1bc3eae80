"""What opening a session does first."""

import subprocess
import sys


def test_spark_starts_before_what_takes_as_long_to_import_is_imported() -> None:
    program = "import sys; import connector.opening; import connector.config.check; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    imported = printed.split()
    assert "connector.spark.session" in imported
    assert not {"pyiceberg", "pyarrow", "pyspark", "sqlalchemy"}.intersection(imported)
