"""The errors of the connector, named by what to do next, and the translation of a client library's errors into them.

The text of an error is all that the user reads: what is wrong, where, and what to change.

Each client has one error table, in the module that uses the client. An entry of a table says which errors it is for,
which error of ours they become, and the sentence that the user reads.
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

# Advice that does not help while the feature flag is on: then a backfill keeps the rows that are the problem.
BACKFILL: Final = (
    "backfill the binding, which replaces all rows unless the feature flag retain_existing_data_on_backfill is on"
)

# Advice for a table whose metadata file is gone or damaged: no backfill can begin on it.
NEW_TABLE: Final = "drop the table in its catalog and publish the task again with the binding's backfill incremented"


class ConnectorError(Exception):
    """An error that ends the process, with a text for the user."""


class UserError(ConnectorError):
    """The user must change a setting, a permission or the data."""


class ArgumentError(UserError):
    """The arguments of a command are wrong, or do not go together."""


class UnreadableFileError(UserError):
    """A file of a table cannot be read. `path` is that of the file, or of the data file whose deleted rows it names."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path, self.text = path, text

    def __str__(self) -> str:
        return self.text


class RetryableError(ConnectorError):
    """Nothing was committed: a restart may help."""


class CommitUnknownError(ConnectorError):
    """A commit may or may not have been done: read the table before anything else."""


class BrokenTaskError(ConnectorError):
    """An internal error: an unexpected exception in a Spark task."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(kind, cause)
        self.kind, self.cause = kind, cause

    def __str__(self) -> str:
        return (
            f"Internal error in a Spark task: {self.kind}: {' '.join(self.cause.split())}. Nothing that "
            "the task wrote has become visible. Run with LOG_LEVEL=debug for a traceback, and report it as a bug."
        )


class MissingTableError(UserError):
    """A binding's table does not exist."""

    def __init__(self, path: tuple[str, str], state_key: str) -> None:
        super().__init__(path, state_key)
        self.path, self.state_key = path, state_key

    def __str__(self) -> str:
        return (
            f"table {'.'.join(self.path)} does not exist. If it was dropped or renamed, bring it back under its name, "
            "or backfill the binding: it makes a new table and reads the source again. If the connector has never "
            "made it, publish the task again."
        )


class UnfitCommitError(UserError):
    """Staged rows and their table do not fit together: the table is gone or another one, the staged files are gone, or
    columns are others. No attempt can add the rows before a person has changed that."""


class LostColumnError(UserError):
    """A column that this session writes was dropped from its table, or got another type: a new session writes the
    columns that the table has then."""


class SignInError(UserError):
    """A server does not accept the credentials, or does not accept them any more."""


class RefusedKeysError(SignInError):
    """AWS does not accept the access keys, or does not accept them any more."""


class FencedError(ConnectorError):
    """Another process acts as this writer, or the table does not say which one does: this process must stop."""


class OlderTableError(FencedError):
    """A table lacks commits that it had: it was restored from an older copy, or its catalog has answered with one. Read
    again, it may have them."""


def join_errors(errors: Sequence[ConnectorError]) -> ConnectorError:
    """Return one error with the texts of all. It is retryable only if each of them is."""
    kind = RetryableError if all(isinstance(error, RetryableError) for error in errors) else UserError
    return kind("\n".join(dict.fromkeys(map(str, errors))))


class InvalidConfigError(UserError):
    """All problems of a config: a line for each, which begins with its path."""


class InvalidValue(NamedTuple):
    """A value that its column cannot hold, and why."""

    table: str
    field: str
    key: str
    value: str
    reason: str
    line: int

    def __str__(self) -> str:
        where = f"line {self.line}: table {self.table}, field {self.field!r}, key {self.key}"
        return f"{where}: {self.value} {self.reason}"


class InvalidValueError(UserError):
    """A value that its column cannot hold, and how the column can be made to hold it, if it can.

    `never_null` says why the column cannot be null; it is empty if it can.
    """

    def __init__(self, invalid: InvalidValue, remedy: str, never_null: str) -> None:
        super().__init__(invalid, remedy, never_null)
        self.invalid, self.remedy, self.never_null = invalid, remedy, never_null

    def __str__(self) -> str:
        sentences = [
            f"{self.invalid}. Nothing of this transaction has become visible. Correct the document at its source.",
            self.remedy,
            "" if self.never_null else "Or deselect the field.",
            self._other_policy,
        ]
        return " ".join(filter(None, sentences))

    @property
    def _other_policy(self) -> str:
        quarantine = (
            'Or set `on_invalid` in the binding\'s config to "quarantine", and such rows go to a table of their own'
        )
        if self.never_null:
            return f'{quarantine}; "null" does not help here: the column is {self.never_null}.'
        return f'{quarantine}, or to "null", and such values become null.'


class TooManyRejectedError(UserError):
    """More of a binding's rows were rejected than its config allows."""

    def __init__(self, table: str, rejected: int, rows: int, max_ratio: float, causes: Sequence[str]) -> None:
        super().__init__(table, rejected, rows, max_ratio, causes)
        self.table, self.rejected, self.rows, self.max_ratio, self.causes = table, rejected, rows, max_ratio, causes

    def __str__(self) -> str:
        return (
            f"table {self.table}: of the last {self.rows} rows {self.rejected} were rejected, more than the binding's "
            f"max_rejected_ratio of {self.max_ratio} allows: {'; '.join(self.causes)}. Nothing of this transaction has "
            "become visible. Correct the documents at their source or the collection's schema, or raise the ratio."
        )


Matcher: TypeAlias = Callable[[Exception], bool]
ReadFacts: TypeAlias = Callable[[Exception], Mapping[str, object]]


class Translation(NamedTuple):
    """The errors that one sentence explains. The sentence has a placeholder for each fact, such as {answer}."""

    matches: Matcher
    kind: type[ConnectorError]
    sentence: str


ErrorTable: TypeAlias = tuple[Translation, ...]


def is_a(*types: type[Exception], saying: Sequence[str] = ("",), read: Callable[[Any], str] = str) -> Matcher:
    """Match the errors of these types whose text, as `read` returns it, contains at least one of the words."""
    return lambda error: isinstance(error, types) and any(words in read(error) for words in saying)


def is_of_full_disk(error: Exception) -> bool:
    """Match the errors of a disk that is full, or of a quota that is used up."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def translate(table: ErrorTable, read_facts: ReadFacts) -> Iterator[None]:
    """Raise what the first translation that matches an error makes of it. An error that none matches stays as it is.

    `read_facts` returns the values of the placeholders. Quotations of a server's answer must be redacted by it if they
    are cut.
    """
    try:
        yield
    except Exception as error:
        translation = next((each for each in table if each.matches(error)), None)
        if translation is None:
            raise
        raise translation.kind(translation.sentence.format(**read_facts(error))) from error
