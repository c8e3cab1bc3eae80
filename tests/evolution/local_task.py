"""A task whose process is this one: without Spark, whose tasks do what is done here."""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.checks.endpoint import OpenedEndpoint
from connector.config.settings import parse
from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.lines.row_lines import Lines
from connector.encoding.parquet.data_files import DataFileWriter, NewFiles
from connector.encoding.parquet.file_options import FileOptions
from connector.encoding.rewriting.converted_files import Rewrite
from connector.iceberg.bound_table import bind_all
from connector.iceberg.catalog_entries import find_all
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence, file_prefix
from connector.model.binding import RowSettings
from connector.model.state import StagedCommit
from connector.rpc.apply import perform
from connector.rpc.plan import plan_tables
from connector.rpc.validate import validate
from fixtures.collection import NAMESPACE
from fixtures.conversation import line
from protocol import request, response
from protocol.codec import decode_request
from protocol.flow import WHOLE_RANGE, Json
from support.tables.local_tables import rewrite_here

TASK: Final = "acmeCo/anything"


class LocalTask:
    """A task of one binding, in a Local catalog if no other is given: what is asked of it comes as the runtime's
    JSON."""

    def __init__(self, warehouse: Path, catalog: Catalog, config: Json = None) -> None:
        local = {"namespace": NAMESPACE, "catalog": {"catalog_type": "Local", "warehouse": str(warehouse)}}
        self._task = {"name": TASK, "config": config or local}
        self.catalog = catalog

    def validated(self, binding: Json, last: Json = None) -> response.ValidatedBinding:
        body = {**self._task, "bindings": [binding], "lastMaterialization": self._materialization(last)}
        message = _decoded(request.Validate, "validate", body)
        [answer] = validate(message).bindings
        return answer

    def applied(
        self, binding: Json, last: Json = None, state: Json = None, rewrite: Rewrite = rewrite_here
    ) -> response.Applied:
        body = {"materialization": self._materialization(binding), "lastMaterialization": self._materialization(last)}
        message = _decoded(request.Apply, "apply", {**body, "state": state})
        endpoint, resources = parse(message.materialization.config, [binding["resourceConfig"]])
        planned = plan_tables(message, resources, endpoint, partial(find_all, self.catalog, endpoint))
        return perform(planned, OpenedEndpoint(endpoint, self.catalog), rewrite)

    def opening(self, binding: Json) -> bytes:
        return line("open", {"materialization": self._materialization(binding), "range": {}})

    def staged(self, binding: Json, stores: Sequence[bytes]) -> StagedCommit:
        """What a session makes of these lines."""
        opened = _decoded(request.Open, "open", {"materialization": self._materialization(binding)})
        [bound] = bind_all(self.catalog, opened.materialization, WHOLE_RANGE.key_range, [RowSettings()])
        table = self.catalog.load_table(bound.binding.path)
        writer_fence = WriterFence.begin(table.properties, bound.writer, [])
        prefix = file_prefix(bound.writer, bound.table_uuid, writer_fence.in_file_names)

        def location() -> str:
            return f"{table.location()}/data/{prefix}-{uuid.uuid4()}.parquet"

        decoder, options = RowDecoder(bound.binding), FileOptions.of_table(table.properties)
        file = DataFileWriter(NewFiles(table.io, location, bound.binding.columns, decoder.schema, options))
        file.write(decoder.decode(Lines(b"".join(stores), lambda place: place + 1)).batch)
        return StagedCommit(
            writer=bound.writer,
            prev=writer_fence.prev,
            next=fence.new_value(writer_fence.prev),
            path=bound.binding.path,
            table_uuid=bound.table_uuid,
            spec_id=bound.arrangement.spec_id,
            schema_id=bound.schema_id,
            files=tuple(file.finish()),
            known=writer_fence.known,
        )

    def landed(self, staged: StagedCommit) -> Table:
        commit.commit_all_or_raise(self.catalog, [staged])
        return self.catalog.load_table(staged.path)

    def _materialization(self, binding: Json) -> Json:
        return None if binding is None else {**self._task, "bindings": [binding]}


def _decoded(kind: type[Any], name: str, body: Json) -> Any:
    message = decode_request(line(name, body))
    assert isinstance(message, kind)
    return message
