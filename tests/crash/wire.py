"""Faults on the wire, between a connector and the servers of its catalog and its object store."""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from crash.catalog_faults import is_refused, lost_answer
from crash.faults import Faults
from crash.storage import DATA_UPLOAD_FAILS, UPLOAD_FAILS, is_data_file
from support.servers.fault_proxy import GENUINE, Answer, Fault, Matches, Request, is_commit

CommittedTable: TypeAlias = Callable[[Request], str | None]  # that a request commits to

STORE_IS_SLOW: Final = "store-is-slow"
STORE_FORBIDS: Final = "store-forbids"
STORE_IS_BUSY: Final = "store-is-busy"
STORE_HANGS: Final = "store-hangs"
DATA_UPLOAD_HANGS: Final = "data-upload-hangs"
PART_FAILS: Final = "part-fails"
SLOW: Final = 4.0  # seconds: longer than the client would wait by itself


def table_on_rest(request: Request) -> str | None:
    return urlsplit(request.path).path.rpartition("/")[2] if is_commit(request) else None


def table_on_glue(request: Request) -> str | None:
    return json.loads(request.body)["TableInput"]["Name"] if request.target == "AWSGlue.UpdateTable" else None


def commit_fault(faults: Faults, table: str, overtake: Callable[[], None]) -> Fault:
    """What becomes of a request to commit to a table."""
    if is_refused(faults, table, uuid.uuid4().hex, overtake):
        return Fault(0, HTTPStatus.SERVICE_UNAVAILABLE)
    lost = lost_answer(faults)
    return lost.fault if lost else GENUINE


class CatalogWire:
    """Has a say in every request to a catalog's server."""

    def __init__(self, faults: Faults, committed_table: CommittedTable, overtake: Callable[[str], None]) -> None:
        self._faults = faults
        self._committed_table = committed_table
        self._overtake = overtake
        self._lost: dict[bytes, Fault] = {}  # AWS's client repeats a request, and must not hear any more then

    def fault_of(self, request: Request) -> Fault:
        table = self._committed_table(request)
        if not table:
            return GENUINE
        fault = self._lost.get(request.body) or commit_fault(self._faults, table, partial(self._overtake, table))
        if request.body and fault.forwarded and fault != GENUINE:
            self._lost[request.body] = fault
        return fault


@dataclass(frozen=True)
class StoreFault:
    """What an object store does with some of its requests."""

    strikes: Matches
    fault: Fault
    delay: float = 0.0  # seconds


def _any(_: Request) -> bool:
    return True


def _begins_upload(request: Request) -> bool:
    """Of a file in one request, or in several."""
    about = _query(request)
    return (request.method == "POST" and "uploads" in about) or (request.method == "PUT" and "partNumber" not in about)


def _begins_data_upload(request: Request) -> bool:
    return _begins_upload(request) and is_data_file(urlsplit(request.path).path)


def _uploads_second_part(request: Request) -> bool:
    return _query(request).get("partNumber") == ["2"]


def _query(request: Request) -> dict[str, list[str]]:
    return parse_qs(urlsplit(request.path).query, keep_blank_values=True)


STORE_FAULTS: Final = {
    UPLOAD_FAILS: StoreFault(_begins_upload, Fault(0, HTTPStatus.INTERNAL_SERVER_ERROR)),
    DATA_UPLOAD_FAILS: StoreFault(_begins_data_upload, Fault(0, HTTPStatus.INTERNAL_SERVER_ERROR)),
    DATA_UPLOAD_HANGS: StoreFault(_begins_data_upload, Fault(0, Answer.SILENCE)),
    STORE_IS_SLOW: StoreFault(_any, GENUINE, delay=SLOW),
    STORE_FORBIDS: StoreFault(_any, Fault(0, HTTPStatus.FORBIDDEN)),
    STORE_IS_BUSY: StoreFault(_any, Fault(0, HTTPStatus.SERVICE_UNAVAILABLE)),
    STORE_HANGS: StoreFault(_any, Fault(0, Answer.SILENCE)),
    PART_FAILS: StoreFault(_uploads_second_part, Fault(0, HTTPStatus.INTERNAL_SERVER_ERROR)),
}


def store_fault(faults: Faults, request: Request) -> Fault:
    """What becomes of a request to the object store."""
    for name, about in STORE_FAULTS.items():
        if about.strikes(request) and faults.strikes(name):
            time.sleep(about.delay)
            return about.fault
    return GENUINE
