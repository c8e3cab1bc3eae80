"""Files that keep their contents in memory after they are written, so that no request is needed to read them again."""

from collections.abc import Sequence
from io import BytesIO
from types import TracebackType
from typing import Self

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream


class WrittenFile(OutputFile):
    """An output file that gets all pieces at once, when it is closed."""

    def __init__(self, file: OutputFile) -> None:
        super().__init__(file.location)
        self._file = file
        self._pieces: Sequence[bytes] = ()

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def exists(self) -> bool:
        return self._file.exists()

    def to_input_file(self) -> "RememberedFile":
        return RememberedFile(self.location, self._pieces)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self, overwrite)

    def send(self, pieces: Sequence[bytes], overwrite: bool) -> None:
        with self._file.create(overwrite) as stream:
            for piece in pieces:
                stream.write(piece)
        self._pieces = pieces


class RememberedFile(InputFile):
    """An input file that is read from memory."""

    def __init__(self, location: str, pieces: Sequence[bytes]) -> None:
        super().__init__(location)
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - PyIceberg's signature
        return BytesIO(b"".join(self.pieces))


class _Stream(OutputStream):
    def __init__(self, file: WrittenFile, overwrite: bool) -> None:
        self._file = file
        self._overwrite = overwrite
        self._pieces: list[bytes] = []

    def write(self, b: bytes) -> int:
        self._pieces.append(b)
        return len(b)

    def tell(self) -> int:
        return sum(map(len, self._pieces))

    def close(self) -> None:
        self._file.send(self._pieces, self._overwrite)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self.close()
