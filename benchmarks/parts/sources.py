"""The documents of the three tables of `scripts/bench year`: what each transaction loads, changes and adds."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.compared_copies import Found, find
from fixtures.collection import Collection, Json
from fixtures.conversation import Row, load, store

RECENT: Final = 200  # keys
TABLES: Final = ("appended", "random", "recent")


@dataclass
class Source:
    """The documents of one table, and which of them a transaction adds and changes."""

    collection: Collection
    binding: int
    added: int  # documents of each transaction
    changed: int
    recent: int | None  # changes are among so many newest documents; None: among all
    documents: Iterator[Json] = field(default_factory=lambda: generated_rows.documents(1 << 40))
    prices: list[float] = field(default_factory=list)  # of all documents

    def choose_loads(self, random: Random) -> list[bytes]:
        """Return the Loads of one transaction."""
        first = max(0, len(self.prices) - self.recent) if self.recent else 0
        numbers = random.sample(range(first, len(self.prices)), self.changed) if self.changed else []
        return [load(self.binding, key_of(number), packed=False) for number in numbers]

    def add(self, count: int) -> Iterator[bytes]:
        """Yield the Stores of the next documents."""
        for _ in range(count):
            document = next(self.documents)
            self.prices.append(document["price"])
            yield store(self.collection, Row(self.binding, document), packed=False)

    def change(self, documents: Sequence[Json]) -> Iterator[bytes]:
        """Yield the Stores of documents that were loaded, with another price."""
        for document in sorted(documents, key=itemgetter("id")):
            price = document["price"] + 1
            self.prices[int(document["id"].removeprefix("m-"))] = price
            row = Row(self.binding, {**document, "price": price}, exists=True)
            yield store(self.collection, row, packed=False)

    def check(self, directory: Path) -> None:
        """End without a report if the table does not have one row for each document, or an old one."""
        found, count = find(directory, self.collection.table), len(self.prices)
        expected = Found(count, count, sum(self.prices))
        if (found.rows, found.keys) != (count, count) or abs(found.sum_of_prices - expected.sum_of_prices) > 0.01:
            sys.exit(f"{self.collection.table} has {found}, not {expected}: nothing is reported")


def make_sources(properties: Mapping[str, str]) -> list[Source]:
    """Return the sources of the three tables, each with ten rows in a transaction."""
    settings = {"additional_table_properties": dict(properties)}
    collections = [
        replace(
            generated_rows.COLLECTION,
            name=f"acmeCo/{name}",
            table=name,
            settings={**settings, "delta_updates": is_delta},
        )
        for name, is_delta in zip(TABLES, (True, False, False), strict=True)
    ]
    appended, random, recent = collections
    return [
        Source(appended, 0, added=10, changed=0, recent=None),
        Source(random, 1, added=0, changed=10, recent=None),
        Source(recent, 2, added=5, changed=5, recent=RECENT),
    ]


def key_of(number: int) -> list[Json]:
    """Return the key of the document with this number."""
    return [f"m-{number:012}", number * 31 % 100_003]
