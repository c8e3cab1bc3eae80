"""The real servers of the tests, for benchmarks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import REPOSITORY
from fixtures.collection import NAMESPACE

# Last: tests/ has directories of the same names as the packages that it tests.
sys.path.append(str(REPOSITORY / "tests"))

from support.endpoint_configs import on_s3, rest
from support.jars import jars
from support.rest_catalog import rest_catalog_on_s3
from support.s3_server import versitygw, versitygw_server


@contextmanager
def rest_endpoint(directory: Path) -> Iterator[Any]:
    """Apache's REST catalog server with an S3 server behind it: the endpoint config for them."""
    for name in ("s3", "rest"):
        (directory / name).mkdir()
    with (
        versitygw_server(versitygw(), directory / "s3") as s3,
        rest_catalog_on_s3(jars("rest-catalog"), directory / "rest", s3) as catalog,
    ):
        yield on_s3(s3, catalog.bucket, NAMESPACE, rest(catalog.uri))
