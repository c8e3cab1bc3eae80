"""A person who starts the command without an argument is not left in the dark."""

import os
import pty
import subprocess
import sys

END_OF_INPUT = b"\x04"  # Ctrl-D


def test_on_a_terminal_the_command_says_what_it_waits_for_and_where_help_is() -> None:
    terminal, stdin = pty.openpty()
    with os.fdopen(terminal, "wb", buffering=0) as keyboard:
        with os.fdopen(stdin) as input_:
            command = [sys.executable, "-m", "connector"]
            process = subprocess.Popen(command, stdin=input_, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        keyboard.write(END_OF_INPUT)
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (0, b"")
    assert b"--help" in stderr
