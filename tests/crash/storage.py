"""Faults where files are created on a disk, in the driver and in Spark's workers."""

from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFile

from crash.faults import Faults, swap

UPLOAD_FAILS: Final = "upload-fails"
DATA_UPLOAD_FAILS: Final = "data-upload-fails"
NO_DATA: Final = ("-located.parquet", "-deletes.parquet")


def is_data_file(location: str) -> bool:
    """Whether the file has rows of a table."""
    return "/data/" in location and location.endswith(".parquet") and not location.endswith(NO_DATA)


def guard() -> None:
    create, faults = PyArrowFile.create, Faults.of_this_process()

    def faulty_create(self: PyArrowFile, overwrite: bool = False) -> Any:
        # An object store has faults of its own, on the wire.
        if self.location.startswith("file:") and (
            faults.strikes(UPLOAD_FAILS) or (is_data_file(self.location) and faults.strikes(DATA_UPLOAD_FAILS))
        ):
            raise OSError("When initiating multiple part upload: AWS Error INTERNAL_FAILURE: 500, try again")
        return create(self, overwrite)

    swap(PyArrowFile, "create", faulty_create)
