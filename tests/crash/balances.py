"""The source of the table with updates, and its oracle: each slot of an account has its last entry, or none."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from crash.ledger import ACCOUNTS, BALANCES, Entry, PromiseBrokenError, Slot, entry, is_valid

DELETED_EVERY: Final = 5


class WrongLoadsError(PromiseBrokenError):
    """A Load returned another version than the source's last one, or none, or one that is deleted."""


def slot_of(about: Entry | Mapping[str, Any]) -> Slot:
    return (about.account, about.slot) if isinstance(about, Entry) else (about["account"], about["slot"])


def is_deleted(entry: Entry) -> bool:
    """Whether the source deletes the slot's document with this entry. None of these entries is invalid."""
    return (2 * entry.account + entry.sequence) % DELETED_EVERY == DELETED_EVERY - 1


def balances_at(committed: int) -> dict[Slot, Entry]:
    """The table's own rows, given how many documents the log has read.

    A rejected version is in another table, and the version that it replaces is gone.
    """
    newest = {slot_of(each): each for each in map(entry, range(committed))}
    return {slot: each for slot, each in newest.items() if is_valid(each) and not is_deleted(each)}


def expected_balances(committed: int, others: Iterable[Entry] = ()) -> Counter[Entry]:
    return Counter(balances_at(committed).values()) + Counter(others)


def check_loaded(documents: Iterable[Mapping[str, Any]], loaded: Iterable[Slot], committed: int) -> None:
    """Raise what is wrong with the answers to Loads of these slots, given what the log has read."""
    model = balances_at(committed)
    wanted = Counter(model[slot] for slot in loaded if slot in model)
    found = Counter(Entry(each["account"], each["sequence"], each["balance"]) for each in documents)
    if found != wanted:
        wrong, right = sorted((found - wanted).elements()), sorted((wanted - found).elements())
        raise WrongLoadsError(f"{BALANCES}: Loads returned {wrong}, not {right}")


def check_progress(found: Counter[Entry], committed: int, others: Iterable[Entry]) -> None:
    """Raise what is wrong with the table while its last transactions may still be on their way: each account must be
    as it was when the log had read so far, or less."""
    own = found - Counter(others)
    if problems := [*_problems(own, committed)]:
        raise PromiseBrokenError(f"{BALANCES}: {'; '.join(problems)}")


def _problems(own: Counter[Entry], committed: int) -> Iterator[str]:
    if early := sorted(each for each in own if each.sequence * ACCOUNTS + each.account >= committed):
        yield f"never committed, but shown: {early}"
    slots = Counter(slot_of(each) for each in own.elements())
    if doubled := sorted(slot for slot, rows in slots.items() if rows > 1):
        yield f"doubled: the rows of {doubled}"
    elif not early:
        for account in range(ACCOUNTS):
            of_account = {slot_of(each): each for each in own if each.account == account}
            states = (_of_account(balances_at(number), account) for number in range(committed + 1))
            if not any(of_account == state for state in states):
                yield f"lost or replaced, in account {account}: {sorted(of_account.values())}"


def _of_account(rows: Mapping[Slot, Entry], account: int) -> dict[Slot, Entry]:
    return {slot: each for slot, each in rows.items() if slot[0] == account}
