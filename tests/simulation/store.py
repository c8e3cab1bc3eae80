"""The object store, in memory, behind PyIceberg's own interface. Every call to it is a boundary."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

Boundary = Callable[[str, str, Callable[[], object]], None]  # called with what is done to which object, and to do it


class StoreIO(FileIO):
    """PyIceberg's door to the object store."""

    def __init__(self, objects: dict[str, bytes], boundary: Boundary) -> None:
        super().__init__({})
        self._objects, self._boundary = objects, boundary

    def new_input(self, location: str) -> "_Object":
        return _Object(location, self._objects, self._boundary)

    def new_output(self, location: str) -> "_Object":
        return _Object(location, self._objects, self._boundary)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        self._boundary("DELETE", name, partial(self._objects.pop, name, None))

    def list(self, directory: str) -> Iterator[str]:
        self._boundary("LIST", directory, _nothing)
        return iter([location for location in self._objects if location.startswith(directory)])


class _Object(InputFile, OutputFile):
    """An object, to be read or to be written as a whole."""

    def __init__(self, location: str, objects: dict[str, bytes], boundary: Boundary) -> None:
        super().__init__(location)
        self._objects, self._boundary = objects, boundary

    def __len__(self) -> int:
        return len(self._objects[self.location])

    def exists(self) -> bool:
        return self.location in self._objects

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - PyIceberg's signature
        self._boundary("GET", self.location, _nothing)
        if self.location not in self._objects:
            raise FileNotFoundError(self.location)
        return Download(self._objects[self.location])

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - PyIceberg's signature
        return _Upload(self.location, self._objects, self._boundary)

    def to_input_file(self) -> "_Object":
        return self


class Download(io.BytesIO):
    """Keeps what it reads from: the very object that was uploaded."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.content = content


class _Upload(OutputStream):
    """An object appears as a whole, when it is closed."""

    def __init__(self, location: str, objects: dict[str, bytes], boundary: Boundary) -> None:
        self._location, self._objects, self._boundary = location, objects, boundary
        self._pieces: list[bytes] = []
        self.closed = False

    def write(self, b: bytes) -> int:
        self._pieces.append(b)
        return len(b)

    def tell(self) -> int:
        return sum(map(len, self._pieces))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._boundary("PUT", self._location, partial(self._objects.__setitem__, self._location, content))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _nothing() -> None:
    pass


def no_boundary(_action: str, _location: str, execute: Callable[[], object]) -> None:
    execute()
