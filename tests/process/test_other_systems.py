"""The connector needs nothing that only Linux has: a conversation works where such calls and files are missing."""

import os
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import pytest

from fixtures import orders
from fixtures.conversation import conversation
from support.engines.readers import readers_catalog
from support.repository import REPOSITORY
from support.sessions.connector_process import run_conversation

TRANSACTIONS: Final = 2
# Python runs this before anything else, in the connector's process and in Spark's Python workers.
WITHOUT_LINUX: Final = """
import fcntl, os, pathlib, socket, sys

pathlib.Path({witness!r}, str(os.getpid())).touch()
del os.sched_getaffinity, os.posix_fadvise, os.memfd_create, os.copy_file_range, os.fdatasync
del fcntl.F_SETPIPE_SZ, socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT
socket.TCP_KEEPALIVE = socket.TCP_KEEPCNT  # a number that can be set; macOS has another one


def hidden(path):
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys/"))


def stat(path, *arguments, find=os.stat, **options):
    if hidden(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    return find(path, *arguments, **options)


def refuse_hidden(event, arguments):
    if event == "open" and hidden(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


os.stat = stat
sys.addaudithook(refuse_hidden)
"""


@pytest.mark.spark
def test_a_conversation_works_without_the_calls_and_files_of_linux(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    witness.mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sitecustomize.py").write_text(WITHOUT_LINUX.format(witness=str(witness)))
    transactions = list(islice(orders.transactions(Random(1)), TRANSACTIONS))
    lines = conversation("orders", orders.COLLECTIONS, transactions)
    paths = os.pathsep.join((str(tmp_path / "modules"), str(REPOSITORY)))
    outcome = run_conversation(lines, tmp_path, {"PYTHONPATH": paths})
    assert outcome.status == 0, outcome.log
    found = {
        each.table: readers_catalog(tmp_path / "warehouse").load_table(("shop", each.table)).scan().to_arrow().num_rows
        for each in orders.COLLECTIONS
    }
    assert found == {
        each.table: sum(row.binding == index for rows in transactions for row in rows)
        for index, each in enumerate(orders.COLLECTIONS)
    }
    assert len([*witness.iterdir()]) > 1, "Spark's Python processes had all of Linux"
