"""The error for input that breaks the protocol. All modules of this package may import it, so it imports none."""


class ProtocolError(Exception):
    """The runtime broke the protocol, or stopped within a transaction. The text says on which line, what it sent, and
    what was expected."""
