"""Applies in two steps, so that something can happen in between; without Spark, whose tasks do what is done here."""

from functools import partial
from pathlib import Path

from connector.checks.endpoint import OpenedEndpoint
from connector.config.settings import parse
from connector.encoding.rewriting.converted_files import Rewrite
from connector.iceberg.catalog_entries import find_all
from connector.rpc.apply import perform
from connector.rpc.plan import plan_tables
from protocol import request
from protocol.flow import Json, Materialization, MaterializationBinding
from support.bindings import local_config, materialization
from support.tables.local_tables import local_catalog, rewrite_here


class Applying:
    """An apply that has planned what it will do."""

    def __init__(
        self, warehouse: Path, new: MaterializationBinding, last: MaterializationBinding | None = None, **advanced: Json
    ) -> None:
        task = materialization(local_config(warehouse, **advanced), new)
        endpoint, resources = parse(task.config, [new.resource_config])
        self._endpoint = OpenedEndpoint(endpoint, local_catalog(warehouse))
        before = Materialization(bindings=(last,)) if last else None
        message = request.Apply(task, last_materialization=before)
        look_up = partial(find_all, self._endpoint.catalog, endpoint)
        self._planned = plan_tables(message, resources, endpoint, look_up)

    def go_on(self, rewrite: Rewrite = rewrite_here) -> str:
        return perform(self._planned, self._endpoint, rewrite).action_description
