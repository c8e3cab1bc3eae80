from pathlib import Path

import pytest

from connector.errors import UserError
from connector.spark.jvm import Jvm


def test_a_directory_that_the_jvm_cannot_have_is_an_error_that_names_tmpdir(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no temporary directory in {tmp_path}/missing can be made: .* set TMPDIR"):
        Jvm(tmp_path / "missing", "512m", {})
