"""Tables in the buckets of Amazon S3 Tables, where the service itself deletes what is no longer needed, and nobody else
may list or delete files."""

from typing import Final
from urllib.parse import urlsplit

BUCKET_SUFFIX: Final = "--table-s3"  # of the names of such buckets only


def is_in_table_bucket(location: str) -> bool:
    return urlsplit(location).netloc.endswith(BUCKET_SUFFIX)
