"""A Hive metastore's errors, in words that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.host.errors import RetryableError, UserError
from connector.iceberg.catalogs.metastore import MetastoreError, MetastoreRefusalError, MetastoreUnreachableError


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Turn a metastore that cannot be reached or that refuses us into an error that says what to do."""
    place = f"the Hive metastore at {uri}"
    try:
        yield
    except MetastoreUnreachableError as error:
        raise RetryableError(
            f"{place} cannot be reached: {error}. Check that it is up, that the network allows it, and /catalog/uri; "
            "it must speak Thrift without Kerberos and TLS."
        ) from error
    except MetastoreRefusalError as error:
        raise UserError(f"{place} refuses this: {first_line(str(error))}. Check the names in the config.") from error
    except MetastoreError as error:
        kind, sentence = next(
            (kind, sentence) for words, kind, sentence in EXPLANATIONS if any(each in str(error) for each in words)
        )
        raise kind(f"{place} {sentence.format(answer=first_line(str(error)))}") from error


# The first entry with words that the metastore's answer contains explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[str, ...], type[UserError] | type[RetryableError], str], ...]] = (
    (
        ("No FileSystem for scheme", "ClassNotFoundException"),
        UserError,
        "cannot reach the store of the tables' files ({answer}). Give it the store's client and sign-in, as Hive's own "
        "tables there need them.",
    ),
    (
        ("Permission denied", "AccessControlException", "AccessDenied"),
        UserError,
        "may not do this itself ({answer}). Give it, or the user of /catalog/properties/ugi, the permission.",
    ),
    (("",), RetryableError, "is not able to answer now: {answer}."),
)


def first_line(text: str) -> str:
    return (text.strip().splitlines() or ["it gives no reason"])[0].rstrip(".")
