"""PyIceberg's FileIO, which uses PyArrow, with changes for four stores and for local disks."""

import errno
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from io import SEEK_CUR, SEEK_SET, RawIOBase
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pyarrow import NativeFile, OSFile
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, GcsFileSystem, S3FileSystem
from pyiceberg.io import (
    ADLS_ACCOUNT_NAME,
    ADLS_SAS_TOKEN,
    GCS_SERVICE_HOST,
    GCS_TOKEN,
    GCS_TOKEN_EXPIRES_AT_MS,
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_PROXY_URI,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    InputStream,
    OutputStream,
)
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, PyArrowLocalFileSystem
from pyiceberg.typedef import EMPTY_DICT, Properties

from connector.host.errors import UserError
from connector.host.threads import call_within
from connector.storage.file_access import ADLS_MACHINE_CREDENTIALS, AZURE_TOKEN_FILE, has_sign_in, read_end
from connector.storage.s3_environment import choose_checksums, find_certificates, find_proxy
from connector.storage.storage_errors import LATE
from connector.storage.store_kinds import AZURE_SCHEMES, S3_SCHEMES

S3_KEYS: Final = (S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, S3_SESSION_TOKEN)
RETRY_SECONDS: Final = 30
ATTEMPTS: Final = 5  # to send a request to S3, with growing pauses of seven seconds in all
LEAST_READ: Final = 16 << 10  # bytes of an object in S3: more than stores say in an error
# A call that reads or writes an object in S3 may take so many seconds, and one more for so many bytes. AWS's client
# only ends what is slower than a byte a second.
LONGEST_CALL: Final = 600.0
LEAST_SPEED: Final = 1 << 16
# With one of these variables, Google's client ignores the address that it is given.
EMULATORS: Final = ("CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT")
JAVA_OPTIONS: Final = "LIBHDFS_OPTS"  # of the JVM that Hadoop's client starts in this process
NO_SIGNALS: Final = "-Xrs"

R = TypeVar("R")


class ArrowFileIO(PyArrowFileIO):
    """Reads and writes files in any store.

    S3: a small file takes one request, not the three of a multipart upload, a failed request is repeated often, also if
    it reads few bytes, one that is too slow is given up, the environment's proxy and certificates are used, and a store
    that may not know AWS's checksums gets none. Google: a failed request is not repeated for 15 minutes. Azure: the
    account's host is not taken for a part of the container's name, and a machine's workload identity can sign in, if
    the config allows it. In these three, PyArrow does not look for the machine's own credentials. HDFS: signals end
    this process, not Java. A local disk: a file is durable when it is closed.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        if not properties.get(S3_ACCESS_KEY_ID):  # PyArrow would look for the machine's own, whatever the address is
            others = {name: value for name, value in properties.items() if name not in S3_KEYS}
            properties = {**others, S3_ANONYMOUS: "true"}
        super().__init__(properties)

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, host and path of a location. In Azure the path begins with the container."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        if scheme not in AZURE_SCHEMES:
            return scheme, netloc, path
        return scheme, netloc, f"{netloc.partition('@')[0]}{path.removeprefix(netloc)}"

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read."""
        return self._find_object(location, super().new_input)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        return self._find_object(location, super().new_output)

    def _find_object(self, location: str, find_file: Callable[[str], PyArrowFile]) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme not in S3_SCHEMES:
            return find_file(location)
        return _S3File(location, path, self.fs_by_scheme(scheme, netloc))

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        if proxy := find_proxy(self.properties):
            self.properties = {**self.properties, S3_PROXY_URI: proxy}
        # PyIceberg has no setting for these options. So the file system is made again, from the options that pickling
        # would keep.
        _, (options,) = super()._initialize_s3_fs(netloc).__reduce__()
        own = {
            "allow_delayed_open": True,
            "retry_strategy": AwsStandardS3RetryStrategy(ATTEMPTS),
            "tls_ca_file_path": find_certificates(),
        }
        with choose_checksums(self.properties):
            return S3FileSystem(**{**options, **own})

    def _initialize_hdfs_fs(self, scheme: str, netloc: str | None) -> FileSystem:
        # Otherwise Java takes over SIGTERM, SIGINT and SIGHUP, and ends this process without our end.
        options = os.environ.get(JAVA_OPTIONS, "").split()
        if NO_SIGNALS not in options:
            os.environ[JAVA_OPTIONS] = " ".join([NO_SIGNALS, *options])
        return super()._initialize_hdfs_fs(scheme, netloc)

    def _initialize_azure_fs(self) -> FileSystem:
        if not has_sign_in(AZURE_SCHEMES[0], self.properties):
            raise UserError(
                f"Azure account {self.properties.get(ADLS_ACCOUNT_NAME, '')}: neither the config nor the catalog has "
                "credentials for its files. Set them in /storage, or let the catalog vend them."
            )
        if token := self.properties.get(ADLS_SAS_TOKEN):
            # PyArrow appends the token to addresses without a question mark.
            self.properties = {**self.properties, ADLS_SAS_TOKEN: f"?{token.removeprefix('?')}"}
        if token_file := self.properties.get(ADLS_MACHINE_CREDENTIALS):
            # Spark's workers do not inherit it. On a cluster, they may have one of their own.
            os.environ.setdefault(AZURE_TOKEN_FILE, token_file)
        return super()._initialize_azure_fs()

    def _initialize_gcs_fs(self) -> FileSystem:
        for name in EMULATORS:
            os.environ.pop(name, None)
        options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=RETRY_SECONDS)}
        if token := self.properties.get(GCS_TOKEN):
            # PyArrow demands a time, and sends the token also afterwards.
            ends = datetime.fromtimestamp(read_end(self.properties, GCS_TOKEN_EXPIRES_AT_MS) or 0, UTC)
            options |= {"access_token": token, "credential_token_expiration": ends}
        else:
            options["anonymous"] = True
        if endpoint := self.properties.get(GCS_SERVICE_HOST):
            address = urlsplit(endpoint)
            options |= {"scheme": address.scheme, "endpoint_override": address.netloc}
        return GcsFileSystem(**options)

    def _initialize_local_fs(self) -> FileSystem:
        return _LocalDisk()


class _LocalDisk(PyArrowLocalFileSystem):
    """A local disk. PyArrow leaves it to the system when a file is written to it: some seconds later."""

    def open_output_stream(self, path: str, *_: Any, **__: Any) -> NativeFile:
        """Return a stream that writes a file. It is durable when it is closed."""
        directory = Path(path).parent
        new = takewhile(lambda each: not each.exists(), (directory, *directory.parents))
        directories = [directory, *(each.parent for each in new)]
        self.create_dir(str(directory))
        stream = _LocalStream(path, "w")
        stream.directories = directories
        return stream


class _LocalStream(OSFile):  # type: ignore[misc]  # PyArrow has no types
    """Writes a file on a local disk."""

    directories: Sequence[Path]  # those that have got an entry for it: its own, and those of new directories

    def close(self) -> None:
        """Complete the file. It is durable when this returns."""
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        for directory in self.directories:
            _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable. Some disks on a network know no such call, and it must be readable."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EBADF, errno.EINVAL):
            raise


class _S3File(PyArrowFile):
    """An object in S3. Its reads and writes have a time limit."""

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - PyIceberg's signature
        """Return a stream, which always reads the parts that are needed."""
        return _SeekableObject(_limit_time(super().open))

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream that writes the object. It is durable when it is closed."""
        return _UploadedObject(_limit_time(partial(super().create, overwrite)))


def _limit_time(call: Callable[[], R], size: int = 0) -> R:
    """Return what a call of PyArrow returns, which transfers so many bytes. Raises TimeoutError if it is too slow."""
    seconds = LONGEST_CALL + size / LEAST_SPEED
    try:
        return call_within(seconds, call)
    except TimeoutError as error:
        raise TimeoutError(f"the answer was {LATE} {seconds:.0f} s") from error


class _SeekableObject(RawIOBase):
    """Reads parts of an object, and never few bytes of it.

    If a store answers with an error that is longer than the bytes that were asked for, such as SlowDown, AWS's client
    fails at once, and does not send the request again.
    """

    def __init__(self, file: NativeFile) -> None:
        super().__init__()
        self._file = file
        self._size = _limit_time(file.size)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return so many bytes, by default all that follow."""
        left = max(self._size - self._position, 0)
        size = left if size is None or size < 0 else min(size, left)
        begin = min(self._position, max(self._size - LEAST_READ, 0))
        content = self._read_at(begin, max(self._position + size - begin, LEAST_READ)) if size else b""
        self._position += size
        return content if len(content) == size else content[self._position - size - begin :][:size]

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the bytes that follow, as far as there are some, and return their number."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Go to a position, and return it."""
        begin = 0 if whence == SEEK_SET else self._position if whence == SEEK_CUR else self._size
        self._position = begin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._file.close()
        super().close()

    def _read_at(self, begin: int, size: int) -> bytes:
        content: bytes = _limit_time(partial(self._file.read_at, size, begin), size)
        return content


class _UploadedObject(RawIOBase):
    """Writes an object. PyArrow uploads it in parts, or when it is closed."""

    def __init__(self, stream: OutputStream) -> None:
        super().__init__()
        self._stream = stream
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        """Add bytes to the object, and return their number."""
        try:
            _limit_time(partial(self._stream.write, content), len(content))
        except TimeoutError:
            super().close()  # `close` would wait for the same again
            raise
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        """Complete the object. It is durable when this returns."""
        if not self.closed:
            super().close()
            _limit_time(self._stream.close, self._size)
