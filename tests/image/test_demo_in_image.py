"""The image's `demo` needs no file, no config and no directory."""

import re
from pathlib import Path

import pytest

from support.engines.readers import readers_catalog
from support.sessions.containers import IMAGE, Image

pytestmark = [*IMAGE, pytest.mark.spark]


def test_a_container_without_a_directory_shows_the_sample_in_a_temporary_one(image: Image) -> None:
    status, output = image.run("demo")
    assert status == 0, output
    assert re.search(r"^warehouse: /tmp/warehouse-\w+$", output, re.MULTILINE)
    assert "━━ demo.orders: 4 rows, 1 snapshot, " in output


@pytest.mark.slow  # test_image_in_readme.py opens tables that a container has written
def test_a_container_writes_to_a_directory_of_the_host(image: Image, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "things.jsonl").write_text('{"id": 7}\n')
    options = {"volumes": [f"{tmp_path}:{tmp_path}"], "working_dir": str(tmp_path)}
    status, output = image.run("demo", "things.jsonl", "--key", "id", **options)
    assert status == 0, output
    assert readers_catalog(tmp_path / "warehouse").load_table("demo.things").scan().to_arrow().num_rows == 1
