"""A file that knows how long it is from what was written: to ask the object store is one more request."""

from types import TracebackType
from typing import Self

from pyiceberg.io import InputFile, OutputFile, OutputStream


class MeasuredOutput(OutputFile):
    """Another output file, measured."""

    def __init__(self, file: OutputFile) -> None:
        super().__init__(file.location)
        self._file = file
        self._stream: _MeasuredStream | None = None

    def __len__(self) -> int:
        return self._stream.length if self._stream else len(self._file)

    def exists(self) -> bool:
        return self._file.exists()

    def to_input_file(self) -> InputFile:
        return self._file.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        self._stream = _MeasuredStream(self._file.create(overwrite))
        return self._stream


class _MeasuredStream(OutputStream):
    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream
        self.length = 0

    def write(self, b: bytes) -> int:
        self.length += len(b)
        return self._stream.write(b)

    def tell(self) -> int:
        return self.length

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self.close()
