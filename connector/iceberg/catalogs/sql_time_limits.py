"""Connections to PostgreSQL that wait at most 70 seconds for an answer.

The server's own limit of 60 seconds ends a query, but it does not help if the server hangs, nor if its COMMIT waits for
another server. Then the server is up, and its machine acknowledges what is sent.

A pooler of connections, such as PgBouncer, may be in front of the server. It gives each transaction another connection.
So nothing is set for a connection: a pooler refuses the limit among `options`, and does not know prepared statements.
"""

import time
from typing import Any, Final, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

R = TypeVar("R")

LONGEST_STATEMENT: Final = 60  # seconds, for the server
LONGEST_ANSWER: Final = 70.0  # seconds: longer than the server's limit, whose error says more


class _TimeLimitedConnection(Connection[Any]):
    """A connection that is closed if an answer does not come in time."""

    def wait(self, gen: PQGen[R], *args: Any, **kwargs: Any) -> R:
        """Return the answer. Raises OperationalError if it does not come in time."""
        return super().wait(self._limit_time(gen), *args, **kwargs)

    def _limit_time(self, gen: PQGen[R]) -> PQGen[R]:
        end = time.monotonic() + LONGEST_ANSWER
        try:
            expected = next(gen)
            while True:
                ready = yield expected  # psycopg also resumes this if nothing came, ten times a second
                if time.monotonic() >= end:
                    self.close()  # otherwise it would be used again
                    raise OperationalError(f"no answer within {LONGEST_ANSWER:.0f} s")
                expected = gen.send(ready)
        except StopIteration as ended:
            answer: R = ended.value
            return answer


class _TimeLimitedDialect(PGDialect_psycopg):
    """SQLAlchemy's dialect, with such connections."""

    supports_statement_cache = True

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        """Open a connection."""
        return _TimeLimitedConnection.connect(*args, **{**kwargs, "prepare_threshold": None})

    def do_begin(self, dbapi_connection: Any) -> None:
        """Begin a transaction, and limit the time of its statements."""
        dbapi_connection.execute(f"SET LOCAL statement_timeout = '{LONGEST_STATEMENT}s'")
