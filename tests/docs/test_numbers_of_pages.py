"""The numbers that pages promise are those of the code: properties of new tables, time limits, attempts and pauses."""

import re
from typing import Any, Final

import pytest

from connector.evolution.property_changes import COMPACTION_PROPERTY, DEFAULT_PROPERTIES
from connector.iceberg.catalogs import metastore, rest, sql, sql_time_limits
from connector.iceberg.commits.retry_commits import RETRY_FOR
from connector.iceberg.maintenance import compaction_thresholds
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds
from connector.notifications import notifier, table_queue, webhook
from connector.spark.jvm import jvm_process
from connector.storage import arrow_file_io, aws_sessions, s3_objects, store_properties
from support.repository import REPOSITORY

DOCS: Final = REPOSITORY / "docs"
ROW: Final = re.compile(r"^\| `([\w.-]+)` \|[^|\n]*\|([^|\n]*)\|", re.MULTILINE)
HEALTHY_TABLES: Final = {name: text.strip() for name, text in ROW.findall((DOCS / "healthy-tables.md").read_text())}
# "three days (259200000)", "`true`", "not set: 100", "512 MiB; new tables have 128 MiB (134217728)"
OF_NEW_TABLES: Final = re.compile(r"(?:.*\((\d+)\)|`?(\w+)`?|.*new tables have `(\w+)`)")

UNSET: Final = CompactionThresholds.of({})
AWS: Final[Any] = aws_sessions.CLIENT_CONFIG
REST: Final = rest.TIME_LIMITS
S3: Final = store_properties.S3_TIME_LIMITS
SENTENCES: Final = (
    (
        "operating.md",
        f"| the object store | {S3['s3.connect-timeout']} s | {S3['s3.request-timeout']} s. In S3 also for the whole: "
        f"{s3_objects.LONGEST_ANSWER / 60:.0f} min for a small file, {arrow_file_io.LONGEST_CALL / 60:.0f} min and 1 s "
        f"for each {arrow_file_io.LEAST_SPEED >> 10} KiB for a part of a large one | {arrow_file_io.ATTEMPTS};",
    ),
    ("operating.md", f"| Google Cloud Storage | 2 min | 2 min | retried for {arrow_file_io.RETRY_SECONDS} s |"),
    (
        "operating.md",
        f"| a REST catalog | {REST.connect:.0f} s | {REST.read:.0f} s, and "
        f"{REST.whole / 60:.0f} min for the whole answer |",
    ),
    (
        "operating.md",
        f"for the credentials of a role | {AWS.connect_timeout} s | {AWS.read_timeout} s | "
        f"{AWS.retries['total_max_attempts']}; commits are retried for {RETRY_FOR:.0f} s |",
    ),
    (
        "operating.md",
        f"| PostgreSQL, for an SQL catalog | {sql.TIME_LIMITS['connect_timeout']} s | "
        f"{int(sql.TIME_LIMITS['tcp_user_timeout']) // 1000} s, and {sql_time_limits.LONGEST_ANSWER:.0f} s if the "
        "server does not keep this limit itself |",
    ),
    (
        "operating.md",
        f"| a Hive metastore | {metastore.TIME_LIMITS.connect} s for each address | {metastore.TIME_LIMITS.read} s;",
    ),
    (
        "operating.md",
        f"| the [webhook](notifications.md) | {webhook.LIMITS.connect} s | {webhook.LIMITS.read} s, and "
        f"{webhook.LIMITS.whole} s for the whole answer |",
    ),
    ("operating.md", f"is asked every {jvm_process.PAUSE:.0f} s whether it still answers"),
    ("operating.md", f"no answer within {jvm_process.ANSWER_TIMEOUT:.0f} s,"),
    (
        "notifications.md",
        f"The webhook has {webhook.LIMITS.connect} seconds to take the connection and {webhook.LIMITS.read} seconds to "
        "answer",
    ),
    (
        "notifications.md",
        f"posted again after {notifier.FIRST_PAUSE:.0f} second, then 2, 4, and so on, up to every "
        f"{notifier.LONGEST_PAUSE / 60:.0f} minutes",
    ),
    ("notifications.md", f"At most {table_queue.MOST_WAITING} messages of each table wait in memory"),
    ("notifications.md", f"messages that wait are posted once more, for at most {notifier.LAST_ATTEMPT:.0f} seconds"),
)


@pytest.mark.parametrize("name", sorted(HEALTHY_TABLES.keys() & DEFAULT_PROPERTIES.keys()))
def test_the_page_says_which_property_a_new_table_has(name: str) -> None:
    found = OF_NEW_TABLES.fullmatch(HEALTHY_TABLES[name])
    assert found
    assert DEFAULT_PROPERTIES[name] in found.groups()


def test_the_page_has_the_properties_of_new_tables_and_says_which_are_not_set() -> None:
    assert DEFAULT_PROPERTIES.keys() - HEALTHY_TABLES.keys() == {"write.parquet.compression-codec"}
    not_set = {name for name, text in HEALTHY_TABLES.items() if text.startswith("not set: ")}
    assert len(not_set) == 5
    assert not not_set & DEFAULT_PROPERTIES.keys()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (COMPACTION_PROPERTY, "`false`; new"),
        ("write.target-file-size-bytes", f"{UNSET.target_size >> 20} MiB; new"),
        (compaction_thresholds.MIN_FILE_SIZE, f"{100 * UNSET.min_size / UNSET.target_size:.0f} % of the target size"),
        (compaction_thresholds.MAX_FILE_SIZE, f"{100 * UNSET.max_size / UNSET.target_size:.0f} % of the target size"),
        (compaction_thresholds.MIN_INPUT_FILES, f"{UNSET.min_files}"),
        (compaction_thresholds.DELETE_RATIO, f"{UNSET.delete_ratio}"),
        (compaction_thresholds.COMMIT_ALLOWANCE, f"64 KiB ({UNSET.commit_allowance})"),
    ],
)
def test_the_page_says_the_thresholds_of_a_compaction_that_are_not_set(name: str, said: str) -> None:
    assert HEALTHY_TABLES[name].startswith(said)


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_a_page_says_the_limits_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join((DOCS / page).read_text().split())


def test_pages_say_in_words_how_often_and_how_long_the_connector_tries() -> None:
    assert jvm_process.UNANSWERED == 4
    assert notifier.GIVE_UP_AFTER == 2 * 24 * 3600
    assert "four times in a row" in (DOCS / "operating.md").read_text()
    assert "fails more than two days after its commit" in (DOCS / "notifications.md").read_text()
