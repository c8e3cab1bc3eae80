"""The oracle: documents carry account, sequence number and running balance, so that what a table must hold is computed
from how far the runtime's log has read, and from nothing else. balances.py has the tables with updates."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from pyiceberg.table import Table

from fixtures.collection import Collection, Field

ACCOUNTS: Final = 4
SLOTS: Final = 3  # of each account: the entries of one take each other's place
KEYS_PER_ACCOUNT: Final = (0xFFFFFFFF + 1) // ACCOUNTS

Slot: TypeAlias = tuple[int, int]  # an account and one of its slots


@dataclass(frozen=True, order=True)
class Entry:
    """A row, as far as the oracle looks at it."""

    account: int
    sequence: int
    balance: int

    @property
    def slot(self) -> int:
        return self.sequence % SLOTS


COLUMNS: Final = ("account", "sequence", "balance")


def entry(number: int) -> Entry:
    """The source's document of this number."""
    account = number % ACCOUNTS
    return Entry(account, number // ACCOUNTS, sum(_amount(other) for other in range(account, number + 1, ACCOUNTS)))


def _amount(number: int) -> int:
    return number * 7919 % 2001 - 1000


def key_of(entry: Entry) -> int:
    """Where the account is in the key range; the runtime hashes keys to the same end."""
    return entry.account * KEYS_PER_ACCOUNT


def document(entry: Entry, memo_size: int, *, is_valid: bool) -> dict[str, Any]:
    return {
        "account": entry.account,
        "slot": entry.slot,
        "sequence": entry.sequence,
        "balance": entry.balance,
        "rate": 1.5 if is_valid else "unknown",
        "memo": _memo(entry, memo_size),
    }


def _memo(entry: Entry, size: int) -> str:
    """A text that is nobody else's and that cannot be compressed much."""
    return b64encode(Random(repr(entry)).randbytes(max(size, SHORTEST_MEMO) * 3 // 4)).decode()


def _collection(name: str, keys: Sequence[str], settings: Mapping[str, Any]) -> Collection:
    integers = ("account", "slot", "sequence", "balance")
    return Collection(
        f"acmeCo/{name}",
        name,
        (
            *(Field(each, f"/{each}", ("integer",), exists="MUST", is_key=each in keys) for each in integers),
            Field("rate", "/rate", ("number",)),
            Field("memo", "/memo", ("string",)),
        ),
        settings,
    )


LEDGER: Final = "ledger"
POSTINGS: Final = "postings"
REJECTED: Final = "postings__rejected"
BALANCES: Final = "balances"
BALANCES_REJECTED: Final = "balances__rejected"
TABLES: Final = (LEDGER, POSTINGS, REJECTED, BALANCES, BALANCES_REJECTED)

# Every entry is a document of all. A few are none that postings and balances can hold: most transactions have no
# rejected rows. Balances are updated: each slot of an account has its last entry.
ENTRY_KEY: Final = ("account", "sequence")
SLOT_KEY: Final = ("account", "slot")
PARTITIONS: Final = 2  # of balances; versions of a slot have different memos, so rows move between them
SHORTEST_MEMO: Final = 4  # characters
COLLECTIONS: Final = (
    _collection(LEDGER, ENTRY_KEY, {"on_invalid": "stop"}),
    _collection(POSTINGS, ENTRY_KEY, {"on_invalid": "quarantine"}),
    _collection(
        BALANCES,
        SLOT_KEY,
        {"on_invalid": "quarantine", "delta_updates": False, "partition_by": f"bucket({PARTITIONS}, memo)"},
    ),
)
REJECTED_EVERY: Final = 5


def is_valid(entry: Entry) -> bool:
    return entry.account != 0 or entry.sequence % REJECTED_EVERY != 0


def is_for(table: str, entry: Entry) -> bool:
    """Whether a table without updates gets it."""
    return {
        LEDGER: True,
        POSTINGS: is_valid(entry),
        REJECTED: not is_valid(entry),
        BALANCES_REJECTED: not is_valid(entry),
    }[table]


class PromiseBrokenError(AssertionError):
    """What the connector promises did not hold."""


def columns_of(table: str) -> tuple[str, ...]:
    """Where a table has its entries."""
    return ("document",) if table in (REJECTED, BALANCES_REJECTED) else COLUMNS


def entry_of(row: Mapping[str, Any]) -> Entry:
    """What a row of any of the tables is about."""
    values = json.loads(row["document"]) if "document" in row else row
    return Entry(*(values[column] for column in COLUMNS))


def visible(table: Table) -> Counter[Entry]:
    name = table.name()[-1]
    try:
        return Counter(map(entry_of, table.scan(selected_fields=columns_of(name)).to_arrow().to_pylist()))
    except FileNotFoundError as error:
        raise PromiseBrokenError(f"{name}: unreadable: {error}") from error


def expected(table: str, committed: int, others: Iterable[Entry] = ()) -> Counter[Entry]:
    """What a table without updates holds when the log has read so many documents and other writers have added
    theirs."""
    ours = (entry(number) for number in range(committed))
    return Counter(entry for entry in ours if is_for(table, entry)) + Counter(others)


def compare(table: str, found: Counter[Entry], expected: Counter[Entry], *, complete: bool) -> None:
    """Raise what is wrong with a table; where its last transactions may still be on their way, it may lack rows."""
    problems = list(_problems(found, expected, complete))
    if problems:
        raise PromiseBrokenError(f"{table}: {'; '.join(problems)}")


def _problems(found: Counter[Entry], expected: Counter[Entry], complete: bool) -> Iterator[str]:
    extra, missing = found - expected, expected - found
    doubled = {row for row in extra if row in expected}
    if shown := sorted(set(extra) - doubled):
        yield f"never committed, but shown: {shown}"
    if doubled:
        yield f"doubled: {sorted(doubled)}"
    if complete and missing:
        yield f"lost: {sorted(missing)}"
