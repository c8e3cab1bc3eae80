"""Tells a Parquet file whose content is damaged from one that cannot be fetched: PyArrow raises an OSError for both."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from connector.host.errors import BACKFILL, UnreadableFileError
from connector.host.redaction import redact_and_shorten
from connector.storage.storage_errors import is_of_content

DAMAGED: Final = (
    "{path} is damaged, or of a form that cannot be read ({answer}). Restore it, or remove it from the table. Or "
    f"{BACKFILL}."
)


@contextmanager
def explain_damage(path: str, sentence: str = DAMAGED) -> Iterator[None]:
    """Raise UnreadableFileError if the file that is read within the block is damaged, or if PyArrow does not know its
    form.

    `sentence` has the placeholders {path} and {answer}.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, pa.ArrowInvalid) and not is_of_content(error):
            raise
        raise UnreadableFileError(path, sentence.format(path=path, answer=quote_error(error))) from error


def read_batches(path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file. Raises UnreadableFileError if it is damaged."""
    with explain_damage(path):
        yield from batches


def quote_error(error: Exception) -> str:
    """Return what PyArrow says of a file, in one line."""
    return redact_and_shorten(str(error))
