"""Tells a Parquet file whose content is damaged from one that cannot be fetched: PyArrow raises an OSError for both."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from connector.host.errors import UnreadableFileError
from connector.host.redaction import redact_and_cut
from connector.storage.storage_errors import is_of_content

_QUOTED_CHARACTERS: Final = 200


def is_damage(error: Exception) -> bool:
    """Whether an error of reading a file says that its content is damaged, or of a form that PyArrow does not know."""
    return isinstance(error, pa.ArrowInvalid) or is_of_content(error)


def quote(error: Exception) -> str:
    """Return the beginning of what PyArrow says of a file, as one line."""
    return redact_and_cut(" ".join(str(error).split()), _QUOTED_CHARACTERS)


@contextmanager
def explain_damage(path: str) -> Iterator[None]:
    """Raise UnreadableFileError if the file that is read within the block is damaged."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        raise UnreadableFileError(
            path,
            f"{path} is damaged, or of a form that cannot be read ({quote(error)}). Restore it, or remove it from the "
            "table. Or backfill the binding, which replaces all rows.",
        ) from error


def read_batches(path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file. Raises UnreadableFileError if it is damaged."""
    with explain_damage(path):
        yield from batches
