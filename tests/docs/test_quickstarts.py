"""The quickstarts do what they say: their configs are valid, and their commands lead to rows."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from connector.config.settings import parse
from protocol.flow import Json
from support.pages import DOCS, commands
from support.repository import REPOSITORY
from support.servers.endpoint_configs import glue, on_s3
from support.servers.rest_catalog import RestCatalogServer
from support.servers.s3_server import S3Server

CHECK: Final = "4. Check the config"
WRITE: Final = "5. Write rows"
# docs/commands.md shows the forms of the command, not a series of commands to copy.
PAGES: Final = sorted({REPOSITORY / "README.md", *DOCS.glob("*.md")} - {DOCS / "commands.md"})
SHELL: Final = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
WRITTEN: Final = re.compile(r"(?:>|\btee )(\w+\.jsonl)\b")
ROWS: Final = "It prints `170`."


@pytest.mark.parametrize("page", ["quickstart-rest.md", "quickstart-glue.md"])
def test_the_config_is_valid_and_all_of_its_settings_are_known(page: str) -> None:
    [config] = re.findall(r"^```json\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    parse(json.loads(config.replace("…", "secret")), [])


def test_a_block_that_reads_documents_makes_them_first() -> None:
    """Someone copies the block whole, and has no such file. The blocks of docs/docker.md are run nowhere."""
    blocks = [block for page in PAGES for block in SHELL.findall(page.read_text()) if "demo documents.jsonl" in block]
    assert len(blocks) == len(["README", "docker", "quickstart-glue", "quickstart-rest"])
    assert all(">documents.jsonl" in block.partition("demo documents.jsonl")[0] for block in blocks)


def test_git_ignores_what_the_pages_let_a_user_write_beside_the_sources(tmp_path: Path) -> None:
    """Conversations and configs have secrets."""
    written = {name for page in PAGES for name in WRITTEN.findall(page.read_text())} | {"config.json", "config.yaml"}
    assert {"conversation.jsonl", "requests.jsonl"} < written
    shutil.copy(REPOSITORY / ".gitignore", tmp_path)
    _run(["git", "init", "--quiet"], tmp_path, {})
    assert set(_run(["git", "check-ignore", *written], tmp_path, {}).split()) == written


@pytest.mark.catalog
@pytest.mark.spark
def test_the_quickstart_on_a_rest_catalog_leads_to_rows(tmp_path: Path, rest_catalog: RestCatalogServer) -> None:
    config = {
        "namespace": "shop",
        "upload_interval": "PT0S",
        "catalog": {"catalog_type": "Iceberg REST Server", "uri": rest_catalog.uri, "warehouse": "lake"},
        "storage": {"storage_type": "Local Files", "directory": str(rest_catalog.warehouse)},
    }
    _follow("quickstart-rest.md", config, tmp_path, {})
    reading = _python("quickstart-rest.md").replace("http://127.0.0.1:8181", rest_catalog.uri)
    assert _run([sys.executable, "-c", reading], tmp_path, {}) == "170\n"


@pytest.mark.catalog
@pytest.mark.spark
def test_the_quickstart_on_glue_leads_to_rows(tmp_path: Path, s3_server: S3Server, glue_uri: str) -> None:
    bucket = s3_server.new_bucket()
    environment = {
        "AWS_ENDPOINT_URL_GLUE": glue_uri,
        "AWS_ENDPOINT_URL_S3": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": s3_server.root.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.root.secret_access_key,
    }
    _follow("quickstart-glue.md", on_s3(s3_server, bucket, "shop", glue()), tmp_path, environment)
    reading = _python("quickstart-glue.md").replace(
        '"s3.region"', f'"s3.endpoint": "{s3_server.endpoint}", "s3.region"'
    )
    assert _run([sys.executable, "-c", reading], tmp_path, environment) == "170\n"


def _follow(page: str, config: Json, directory: Path, environment: dict[str, str]) -> None:
    """Do the steps from the check on. Each line that the page shows of the check is printed."""
    for name in ("fixtures", "scripts"):
        (directory / name).symlink_to(REPOSITORY / name)
    (directory / "config.json").write_text(json.dumps(config))
    [check] = commands(page, CHECK)
    checked = _run(["bash", "-c", check], directory, environment)
    [shown] = re.findall(r"^```text\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    uri = config["catalog"].get("uri", "")
    for line in shown.replace("http://127.0.0.1:8181", uri).splitlines():
        if "namespace" in line and "✓ namespace shop exists" in checked:
            continue  # another test has created it on the same server
        assert re.search("^" + ".*".join(map(re.escape, line.split("…"))) + "$", checked, re.MULTILINE), line
    for command in commands(page, WRITE):
        _run(["bash", "-c", f"set -e -o pipefail; {command}"], directory, environment)
    assert (directory / "responses.jsonl").read_text().splitlines()[-1].startswith('{"acknowledged"')


def _python(page: str) -> str:
    text = (DOCS / page).read_text()
    assert ROWS in text
    [block] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(block)


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, (command, run.stdout, run.stderr)
    return run.stdout
