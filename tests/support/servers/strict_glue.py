"""AWS Glue as moto plays it, but as strict as Glue: run by the Python that has moto, with the port to listen on.

moto takes any UpdateTable. Glue refuses one that was built on an older version of the table, and whatever breaks the
limits that its own service model states.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import botocore.session
from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult, EmptyResult
from moto.glue.responses import GlueResponse
from moto.server import main

MODEL = botocore.session.get_session().get_service_model("glue")
ONE_AT_A_TIME = threading.Lock()
TYPES = frozenset({"compaction", "retention", "orphan_file_deletion"})
optimizers: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)  # by database and table, then by type

update_table: Callable[[GlueResponse], ActionResult] = GlueResponse.update_table
create_table: Callable[[GlueResponse], ActionResult] = GlueResponse.create_table


@wraps(create_table)
def strict_create_table(self: GlueResponse) -> ActionResult:
    _check_limits(self, "CreateTable")
    with ONE_AT_A_TIME:
        return create_table(self)


@wraps(update_table)
def strict_update_table(self: GlueResponse) -> ActionResult:
    _check_limits(self, "UpdateTable")
    with ONE_AT_A_TIME:
        table = self.glue_backend.get_table(self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"])
        expected, current = self.parameters.get("VersionId"), table.as_dict()["VersionId"]
        if expected not in (None, current):
            raise JsonRESTError(
                "ConcurrentModificationException", f"Update table failed due to concurrent modifications: {current}"
            )
        return update_table(self)


def create_table_optimizer(self: GlueResponse) -> ActionResult:
    of_table, kind = _find_optimizers(self, "CreateTableOptimizer")
    of_table[kind] = self.parameters["TableOptimizerConfiguration"]
    return EmptyResult()


def get_table_optimizer(self: GlueResponse) -> ActionResult:
    """moto has no optimizers. Glue has one of each type for a table, at most."""
    of_table, kind = _find_optimizers(self, "GetTableOptimizer")
    if kind not in of_table:
        raise JsonRESTError("EntityNotFoundException", "Optimizer not found")
    place = {name: self.parameters[name] for name in ("CatalogId", "DatabaseName", "TableName")}
    optimizer = {"type": kind, "configuration": of_table[kind], "configurationSource": "table"}
    return ActionResult({**place, "TableOptimizer": optimizer})


def _find_optimizers(response: GlueResponse, operation: str) -> tuple[dict[str, Any], str]:
    _check_limits(response, operation)
    given = response.parameters
    if missing := {*MODEL.operation_model(operation).input_shape.required_members} - given.keys():
        raise JsonRESTError("InvalidInputException", f"{', '.join(sorted(missing))} must be given")
    if given["Type"] not in TYPES:
        raise JsonRESTError("InvalidInputException", f"there is no optimizer of the type {given['Type']}")
    table = response.glue_backend.get_table(given["DatabaseName"], given["TableName"])
    if given["CatalogId"] != table.as_dict()["CatalogId"]:
        raise JsonRESTError("EntityNotFoundException", f"there is no catalog {given['CatalogId']}")
    return optimizers[given["DatabaseName"], given["TableName"]], given["Type"]


def _check_limits(response: GlueResponse, operation: str) -> None:
    broken = list(_broken_limits(response.parameters, MODEL.operation_model(operation).input_shape, operation))
    if broken:
        raise JsonRESTError("ValidationException", "; ".join(broken))


def _broken_limits(value: Any, shape: Any, path: str) -> Iterator[str]:
    match shape.type_name:
        case "structure":
            for name in value.keys() & shape.members.keys():
                yield from _broken_limits(value[name], shape.members[name], f"{path}.{name}")
        case "list":
            for member in value:
                yield from _broken_limits(member, shape.member, path)
        case "map":
            for key, member in value.items():
                yield from _broken_limits(key, shape.key, path)
                yield from _broken_limits(member, shape.value, f"{path}.{key}")
        case "string":
            if not _fits(value, shape.metadata):
                yield f"{path}: {value!r} is longer, shorter or of more lines than it may be"


def _fits(text: str, limits: Mapping[str, Any]) -> bool:
    is_one_line = not any(char < " " for char in text if char != "\t")
    may_have_lines = "\\n" in limits.get("pattern", "\\n")
    return limits.get("min", 0) <= len(text) <= limits.get("max", len(text)) and (is_one_line or may_have_lines)


GlueResponse.create_table_optimizer = create_table_optimizer
GlueResponse.get_table_optimizer = get_table_optimizer
GlueResponse.create_table = strict_create_table
GlueResponse.update_table = strict_update_table
main(["--host", "127.0.0.1", "--port", sys.argv[1]])
