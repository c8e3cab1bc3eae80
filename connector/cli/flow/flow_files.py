"""Reads a task from a Flow specification: its endpoint config, its bindings and their collections."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from connector.cli.config_files import STDIN, decrypted, read_config, read_file
from connector.cli.flow.field_selection import FieldRules
from connector.cli.flow.json_schemas import infer_shape
from connector.cli.flow.projections import ExplicitProjection, make_collection
from connector.host.errors import UserError
from protocol.flow import Collection, Json

T = TypeVar("T")

log = logging.getLogger(__name__)

WRITE_SCHEMA: Final = "write-schema"
WRITE_SCHEMAS: Final = ("flow://write-schema", "flow://relaxed-write-schema")


class _Connector(msgspec.Struct, frozen=True):
    config: Json = None


class _Endpoint(msgspec.Struct, frozen=True):
    connector: _Connector | None = None
    local: _Connector | None = None


class _Source(msgspec.Struct, frozen=True):
    name: str


class _Binding(msgspec.Struct, frozen=True):
    source: str | _Source
    resource: dict[str, Json]
    fields: FieldRules = FieldRules()
    backfill: int = 0
    disable: bool = False


class _Materialization(msgspec.Struct, frozen=True):
    endpoint: _Endpoint
    bindings: tuple[_Binding, ...] = ()


class _Extended(msgspec.Struct, frozen=True):
    location: str
    partition: bool = False


class _CollectionDefinition(msgspec.Struct, frozen=True, rename="camel"):
    key: tuple[str, ...]
    schema: Json = None
    write_schema: Json = None
    read_schema: Json = None
    projections: dict[str, str | _Extended] = {}


class _Import(msgspec.Struct, frozen=True):
    url: str


class _Specification(msgspec.Struct, frozen=True):
    imports: tuple[str | _Import, ...] = msgspec.field(default=(), name="import")
    materializations: dict[str, Json] = {}
    collections: dict[str, Json] = {}


@dataclass(frozen=True)
class TaskBinding:
    """A binding of a task, before its fields are selected. Its collection is read when it is needed."""

    resource: Json
    rules: FieldRules
    backfill: int
    read_collection: Callable[[], Collection]

    @cached_property
    def collection(self) -> Collection:
        return self.read_collection()


@dataclass(frozen=True)
class Task:
    """A task as a user wrote it. A config file gives neither a name nor bindings."""

    config: Json
    name: str = ""
    bindings: tuple[TaskBinding, ...] = ()


@dataclass(frozen=True)
class ConfigFile:
    """The argument --config: a file with an endpoint config."""

    file: str

    def read(self) -> Task:
        return Task(read_config(self.file))


@dataclass(frozen=True)
class FlowFile:
    """The arguments --flow and --task: a Flow specification, and the name of a task in it."""

    file: str
    task: str | None = None

    def read(self) -> Task:
        """Read the task. Raises UserError if the file does not have it, or if it or one of its collections is wrong."""
        definitions = _Definitions.load(self.file)
        name = definitions.choose_task(self.file, self.task)
        path, value = definitions.materializations[name]
        task = _convert(path, name, value, _Materialization)
        connector = task.endpoint.connector or task.endpoint.local
        if connector is None:
            raise UserError(f"{path}: {name} has no `connector` in its `endpoint`. Add it, with the config.")
        if isinstance(connector.config, str):
            config = read_config(str(path.parent / connector.config))
        else:
            config = decrypted(connector.config, f"{path}: the config of {name}")
        return Task(config, name, tuple(definitions.bind(each) for each in task.bindings if not each.disable))


@dataclass(frozen=True)
class _Definitions:
    """All definitions of a specification and of its imports, each with its file."""

    materializations: Mapping[str, tuple[Path, Json]]
    collections: Mapping[str, tuple[Path, Json]]

    @classmethod
    def load(cls, file: str) -> "_Definitions":
        files = dict(_load(Path(file), {}))
        return cls(
            {name: (path, value) for path, spec in files.items() for name, value in spec.materializations.items()},
            {name: (path, value) for path, spec in files.items() for name, value in spec.collections.items()},
        )

    def choose_task(self, file: str, wanted: str | None) -> str:
        names = sorted(self.materializations)
        if not names:
            raise UserError(f"{file} defines no materialization, and imports none.")
        if wanted is None and len(names) > 1:
            raise UserError(f"{file} defines several materializations: choose one of {', '.join(names)} with --task.")
        if wanted is not None and wanted not in names:
            raise UserError(f"{file} defines no materialization {wanted}. It defines {', '.join(names)}.")
        return wanted or names[0]

    def bind(self, binding: _Binding) -> TaskBinding:
        name = binding.source if isinstance(binding.source, str) else binding.source.name
        return TaskBinding(binding.resource, binding.fields, binding.backfill, partial(self.read_collection, name))

    def read_collection(self, name: str) -> Collection:
        if name not in self.collections:
            raise UserError(
                f"collection {name} is bound, but neither the Flow specification nor a file that it imports defines "
                "it. Add it, for example with `flowctl catalog pull-specs`."
            )
        return _read_collection(name, *self.collections[name])


def _load(file: Path, loaded: dict[Path, None]) -> Iterator[tuple[Path, _Specification]]:
    """Yield the file and all files that it imports, each once."""
    path = Path.cwd() / "stdin" if str(file) == STDIN else file.resolve()
    if path in loaded:
        return
    loaded[path] = None
    specification = _convert(path, "the specification", read_file(str(file)), _Specification)
    yield path, specification
    for each in specification.imports:
        imported = each if isinstance(each, str) else each.url
        if "\0" in imported:
            raise UserError(f"{path}: the import {imported!r} is not the name of a file. Correct it.")
        if imported.startswith(("http://", "https://")):
            log.warning("%s imports %s, which is not read: only files are", path, imported)
        else:
            yield from _load(path.parent / imported, loaded)


def _convert(path: Path, name: str, value: Json, form: type[T]) -> T:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {name} is not as Flow defines it: {error}.") from error


def _read_collection(name: str, path: Path, value: Json) -> Collection:
    definition = _convert(path, f"collection {name}", value, _CollectionDefinition)
    base = path.as_uri()
    given = definition.schema if definition.write_schema is None else definition.write_schema
    if given is None and definition.read_schema is None:
        raise UserError(f"{path}: collection {name} has no schema. Add `schema`, or `writeSchema` and `readSchema`.")
    try:
        write_schema = _refer_to(given, base)
        read_schema = write_schema if definition.read_schema is None else _refer_to(definition.read_schema, base)
        shape = infer_shape(read_schema, f"{base}?read-schema", partial(_retrieve, write_schema, base, name))
    except UserError as error:
        raise UserError(f"{path}: collection {name}: {error}") from error
    if not definition.key:
        raise UserError(f"{path}: collection {name} has an empty key. Add its locations, such as /id.")
    explicit = [
        ExplicitProjection(field, each)
        if isinstance(each, str)
        else ExplicitProjection(field, each.location, each.partition)
        for field, each in definition.projections.items()
    ]
    for ptr in (*definition.key, *(each.ptr for each in explicit if each.ptr)):
        if not ptr.startswith("/"):
            raise UserError(f"{path}: collection {name} has the location {ptr!r}. Write it as a JSON pointer: /{ptr}.")
    return make_collection(name, definition.key, shape, explicit)


def _refer_to(schema: Json, base: str) -> Json:
    """Return a schema that is in the specification; a file's name becomes a reference to the file."""
    if not isinstance(schema, str):
        return schema
    try:
        return {"$ref": urljoin(base, schema)}
    except ValueError as error:
        raise UserError(f'its schema "{schema}" is not the name of a file. Correct it.') from error


def _retrieve(write_schema: Json, base: str, collection: str, uri: str) -> Json:
    """Return the schema at a URI that another schema refers to."""
    if uri in WRITE_SCHEMAS:
        return {"$ref": f"{base}?{WRITE_SCHEMA}"}
    if uri == f"{base}?{WRITE_SCHEMA}":
        return write_schema
    if uri.startswith("flow://"):
        log.warning(
            "collection %s: its schema %s is known to Flow only; fields that no other schema names are left out",
            collection,
            uri,
        )
        return {}
    address = urlsplit(uri)
    if address.scheme != "file":
        raise UserError(f"its JSON schema refers to {uri}: only files are read. Save the schema beside the file.")
    return read_file(unquote(address.path))
