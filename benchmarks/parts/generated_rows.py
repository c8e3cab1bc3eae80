"""A long transaction made up: Store lines of 13 columns, about 1.05 KB each, with their root document."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from fixtures.collection import DOCUMENT, OPERATION, PUBLISHED_AT, Collection, Field, Json, meta, rfc3339
from fixtures.conversation import Row, line, store

SEED: Final = 1
POOL: Final = 997  # notes and the shape of attributes repeat after so many rows; everything else is each row's own
STEP: Final = 7_919  # microseconds from row to row
DAY: Final = 86_400_000_000  # microseconds
BLOCK: Final = 8 << 20

COLLECTION: Final = Collection(
    "acmeCo/measurements",
    "measurements",
    (
        Field("id", "/id", ("string",), exists="MUST", is_key=True),
        Field("account", "/account", ("integer",), exists="MUST", is_key=True),
        OPERATION,
        PUBLISHED_AT,
        Field("active", "/active", ("boolean",), exists="MUST"),
        Field("attributes", "/attributes", ("object",), exists="MUST"),
        Field("created_at", "/created_at", ("string",), exists="MUST", string={"format": "date-time"}),
        Field("day", "/day", ("string", "null"), string={"format": "date"}),
        Field("note", "/note", ("string", "null")),
        Field("payload", "/payload", ("string",), string={"contentEncoding": "base64"}),
        Field("price", "/price", ("number",), exists="MUST"),
        Field("quantity", "/quantity", ("integer", "string"), string={"format": "integer"}),
    ),
)
assert len(COLLECTION.fields) + len([DOCUMENT]) == 13


def store_lines(directory: Path, rows: int, *, packed: bool, step: int = STEP) -> Path:
    """The file of these lines, written once. `step` is the time from row to row, in microseconds."""
    steps = "" if step == STEP else f"-{step}"
    path = directory / f"stores-{rows}{steps}-{'packed' if packed else 'plain'}.jsonl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb", buffering=BLOCK) as file:
            file.writelines(store(COLLECTION, Row(0, document), packed=packed) for document in documents(rows, step))
        unfinished.rename(path)
    return path


def documents(rows: int, step: int = STEP) -> Iterator[Json]:
    random = Random(SEED)
    pool = [_words(random, 24) for _ in range(POOL)]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(rows):
        instant = start + timedelta(microseconds=number * step)
        words = pool[number % POOL]
        yield {
            "_meta": meta(instant),
            "id": f"m-{number:012}",
            "account": number * 31 % 100_003,
            "active": number % 3 == 0,
            "attributes": {
                "source": {"host": words[0], "port": 1024 + number % 60_000, "tags": words[1:5]},
                "ratio": random.random(),
                "labels": {words[5]: words[6], words[7]: None},
                "trace": f"{random.getrandbits(128):032x}",
            },
            "created_at": rfc3339(instant),
            "day": None if number % 11 == 0 else f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}",
            "note": None if number % 7 == 0 else " ".join(words[8:17]),
            "payload": b64encode(random.randbytes(36)).decode(),
            "price": random.randrange(1_000_000) / 100,
            "quantity": str(number % 500) if number % 5 == 0 else number % 500,
        }


def _words(random: Random, count: int) -> list[str]:
    return ["".join(random.choices("abcdefghijklmnop", k=random.randint(3, 9))) for _ in range(count)]


START_COMMIT: Final = line("startCommit", {"runtimeCheckpoint": {"sources": {"bench": {"readThrough": "1"}}}})
