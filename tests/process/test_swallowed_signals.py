"""A signal that comes while Python cannot raise anything, or while the last record is written, ends the process all the
same."""

import subprocess
import sys
from typing import Final

from fixtures.conversation import line

SIGNALLED_IN_A_FINALIZER: Final = """
import signal, sys
from connector import driver
from connector.host import signals
from protocol import stdio

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

wire = stdio.claim_stdout()
signals.install(wire)
Finalized()
try:
    driver.serve(stdio.RequestReader(0), wire)
except signals.Stopped as stopped:
    sys.exit(stopped.exit_status)
"""
# As one that waits for the reader of stderr, which has stopped to read.
SIGNALLED_IN_THE_LAST_RECORD: Final = """
import logging, os, signal
from connector.command_line import main

logging.getLogger("connector").addFilter(lambda _: signal.raise_signal(signal.SIGTERM))
os._exit(main([]))
"""


def test_a_signal_that_a_finalizer_swallows_ends_the_process_before_its_next_request() -> None:
    requests = line("spec", {}) * 2
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_IN_A_FINALIZER], input=requests, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout.count(b"\n")) == (143, 1)
    assert b"Exception ignored" in ended.stderr


def test_a_signal_while_the_last_record_is_written_ends_the_process_without_a_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_IN_THE_LAST_RECORD], input=b"no message\n", capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (143, b"")
