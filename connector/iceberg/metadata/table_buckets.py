"""Tables in the buckets of Amazon S3 Tables: the service deletes what they no longer need, and lets nobody else list or
delete files there."""

from typing import Final
from urllib.parse import urlsplit

ENDING: Final = "--table-s3"  # of their names, and of no other bucket's


def is_in_table_bucket(location: str) -> bool:
    return urlsplit(location).netloc.endswith(ENDING)
