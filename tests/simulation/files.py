"""Manifests and manifest lists as they are in memory, not as Avro has them: most of a small commit's cost is Avro.

PyIceberg's own writers and readers decide what is in them, as ever. What Avro does is put them into bytes and back:
`test_simulation` runs schedules both ways and compares them.
"""

import pickle
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pytest
from pyiceberg import manifest
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.typedef import Record


class PickledOutput:
    """Stands for AvroOutputFile."""

    def __init__(self, output_file: OutputFile, *_: Any, **__: Any) -> None:
        self.output_file = output_file
        self._records: list[Record] = []

    def __class_getitem__(cls, _: object) -> type[Self]:
        return cls

    def __enter__(self) -> Self:
        return self

    def write_block(self, records: Sequence[Record]) -> None:
        self._records += pickle.loads(pickle.dumps(records))

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        with self.output_file.create(overwrite=True) as stream:
            stream.write(pickle.dumps(self._records))


class PickledInput:
    """Stands for AvroFile."""

    def __init__(self, input_file: InputFile, *_: Any, **__: Any) -> None:
        self._input_file = input_file

    def __class_getitem__(cls, _: object) -> type[Self]:
        return cls

    def __enter__(self) -> Iterator[Record]:
        with self._input_file.open() as stream:
            return iter(pickle.loads(stream.read()))

    def __exit__(self, *_: object) -> None:
        pass


def keep_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifest, "AvroOutputFile", PickledOutput)
    patch.setattr(manifest, "AvroFile", PickledInput)
    # The schemas that it derives are for Avro only.
    patch.setattr(manifest.ManifestWriter, "new_writer", lambda writer: PickledOutput(writer._output_file))
