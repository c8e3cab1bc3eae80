"""A function that goes to tasks stays within Spark, however large it is: it may have the credentials of many tables."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

SECRET: Final = b"the secret of a table"
RUN: Final = f"""
import os
import socket
import struct
from functools import partial
from pathlib import Path
from connector.spark.jvm.start_spark import start_spark

def return_thing(access, thing):
    return thing

def ask_for_it(port):
    # Spark's message OpenBlocks, which any process of this machine could send.
    texts = [struct.pack(">i", len(text)) + text for text in (b"any", b"any", b"broadcast_0_piece0")]
    message = b"\\0" + texts[0] + texts[1] + struct.pack(">i", 1) + texts[2]
    request = struct.pack(">bqi", 3, 1, len(message)) + message
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
        stranger.sendall(struct.pack(">q", 8 + len(request)) + request)
        return stranger.recv(1 << 16)

with start_spark({{"spark.master": "local[1]"}}) as started:
    for _ in range(2):
        access = os.urandom(2 << 20) + {SECRET!r}
        print(started.spark.map(partial(return_thing, access), [1, 2, 3]).result())
    files = [file for file in Path(os.environ["TMPDIR"]).rglob("*") if file.is_file()]
    assert files, "those of Spark"
    print([str(file) for file in files if {SECRET!r} in file.read_bytes()])
    blocks = started.spark._context.result()._jvm.org.apache.spark.SparkEnv.get().blockManager()
    print(b"Expected SaslMessage" in ask_for_it(blocks.blockManagerId().port()))
"""


@pytest.mark.spark
def test_a_large_function_leaves_no_file_with_its_credentials_and_no_stranger_gets_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    outcome = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert outcome.stdout.splitlines() == ["[1, 2, 3]", "[1, 2, 3]", "[]", "True"], outcome.stderr
