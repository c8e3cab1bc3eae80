"""A connector that answers Open by printing what it has imported so far to stderr."""

import sys
from typing import Never

from connector import command_line
from protocol import stdio
from protocol.response import Opened, Response
from protocol.stdio import Wire


def print_imported(wire: Wire, response: Response) -> Never:  # noqa: ARG001 - the signature of what it replaces
    assert isinstance(response, Opened)
    print(*sys.modules, file=sys.stderr)
    sys.exit()


stdio.write_response = print_imported
command_line.main([])
