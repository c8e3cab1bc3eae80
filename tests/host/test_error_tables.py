"""A client's error becomes what the first entry that matches it says, and no other error is touched."""

import errno
import os
from collections.abc import Mapping
from typing import Final

import pytest

from connector.host.errors import (
    ConnectorError,
    ErrorTable,
    RetryableError,
    Translation,
    UserError,
    is_a,
    is_of_full_disk,
    join_errors,
    translate,
)

TABLE: Final[ErrorTable] = (
    Translation(is_a(ConnectionRefusedError), RetryableError, "{server} is down."),
    Translation(is_a(ConnectionError, saying=("busy", "later")), RetryableError, "{server} is busy ({answer})."),
    Translation(is_a(ConnectionError), UserError, "{server} refuses ({answer})."),
)


def facts(error: Exception) -> Mapping[str, object]:
    return {"server": "the server", "answer": error}


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConnectionRefusedError("busy"), RetryableError, "the server is down."),
        (ConnectionError("come later"), RetryableError, "the server is busy (come later)."),
        (ConnectionError("no {server}"), UserError, "the server refuses (no {server})."),
    ],
)
def test_the_first_entry_that_matches_translates_an_error(error: Exception, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as raised, translate(TABLE, facts):
        raise error
    assert str(raised.value) == text
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("errors", "kind", "text"),
    [
        ([RetryableError("a"), RetryableError("b")], RetryableError, "a\nb"),
        ([RetryableError("a"), UserError("b")], UserError, "a\nb"),
        ([RetryableError("a"), RetryableError("a")], RetryableError, "a"),
    ],
)
def test_several_errors_are_one_which_is_retryable_only_if_each_of_them_is(
    errors: list[ConnectorError], kind: type[ConnectorError], text: str
) -> None:
    joined = join_errors(errors)
    assert (type(joined), str(joined)) == (kind, text)


@pytest.mark.parametrize(("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_quota_that_is_used_up_is_a_full_disk(number: int, is_full: bool) -> None:
    assert is_of_full_disk(OSError(number, os.strerror(number))) is is_full


def test_an_error_that_no_entry_matches_stays_as_it_is() -> None:
    error = ValueError("busy")
    with pytest.raises(ValueError, match="busy") as raised, translate(TABLE, facts):
        raise error
    assert raised.value is error


def test_the_text_may_be_read_from_a_part_of_the_error() -> None:
    matches = is_a(OSError, saying=("locked",), read=lambda error: error.strerror)
    assert matches(OSError(1, "locked"))
    assert not matches(OSError(1, "gone", "locked"))
