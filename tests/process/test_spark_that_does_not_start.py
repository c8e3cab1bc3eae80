"""A Spark that cannot start fails the first transaction, and the last record says what keeps it from starting."""

import re
from pathlib import Path

import pytest

from fixtures.conversation import CONFIG
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("setting", "value", "cause"),
    [
        # tests/spark has the errors of settings.
        pytest.param("spark.master", "nowhere", "'nowhere', which is no master of Spark", marks=pytest.mark.slow),
        ("spark.master", "spark://127.0.0.1:1", r"no Spark master of spark://127\.0\.0\.1:1 can be reached .*refused"),
        ("spark.driver.memory", "1m", "Too small maximum heap"),  # the JVM ends
        ("spark.driver.memory", "400m", "System memory .* must be at least"),  # refused by the JVM, which lives on
    ],
)
def test_the_last_record_names_the_cause(setting: str, value: str, cause: str, tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, config={**CONFIG, "advanced": {"spark": {setting: value}}})
    with runtime.open(publish=True) as session:
        session.flush()
        session.store({"id": 1})
        session.send_start_commit()
        outcome = session.connector.wait()
    assert outcome.status == 1
    (line,) = [line for line in outcome.log.splitlines() if " error " in line]
    assert line == outcome.last_log_line
    assert re.search(cause, line)


def test_an_error_after_opened_ends_the_process_without_another_request(tmp_path: Path) -> None:
    # Open has been answered before the session finds that it cannot listen there.
    settings = {"spark.master": "yarn", "spark.driver.bindAddress": "192.0.2.1"}
    runtime = Runtime(tmp_path, config={**CONFIG, "advanced": {"spark": settings}})
    with runtime.start(publish=True) as session:
        session.opened()
        outcome = session.connector.wait()
    assert outcome.status == 1
    (line,) = [line for line in outcome.log.splitlines() if " error " in line]
    assert line == outcome.last_log_line
    assert re.search(r"Spark's tasks cannot be listened for at 192\.0\.2\.1:0", line)
