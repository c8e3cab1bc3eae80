"""The entry point of the command. While the command line is imported, Ctrl-C ends the process without a traceback."""

import os
import signal


def run() -> None:
    """Run the command, and end the process at once: a thread may still wait for a network that does not answer."""
    # Until the command or the session has something to end in order. A shell has it ignored in the background.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from connector.command_line import main

    os._exit(main())


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)  # the shell's convention


if __name__ == "__main__":
    run()
