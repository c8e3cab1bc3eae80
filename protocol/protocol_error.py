"""What the runtime can do wrong."""


class ProtocolError(Exception):
    """The runtime sent what the protocol does not allow here: what, on which line, and what was expected."""
