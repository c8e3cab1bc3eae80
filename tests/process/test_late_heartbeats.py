"""Spark on one machine does not end because its heartbeats to itself seem late, such as after the clock was set forward
or the container was paused."""

from pathlib import Path
from typing import Final

import pytest

from fixtures.conversation import CONFIG
from support.engines.readers import ledger_ids
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime

# The first heartbeat comes after one to two seconds, and Spark waits for one second.
IMPATIENT: Final = {
    "spark.network.timeout": "1s",
    "spark.network.timeoutInterval": "10ms",
    "spark.executor.heartbeatInterval": "999ms",
    "spark.rpc.askTimeout": "120s",
    "spark.rpc.lookupTimeout": "120s",
}
LATEST: Final = 3.0  # seconds after the first transaction


@pytest.mark.spark
def test_spark_does_not_take_itself_for_lost(tmp_path: Path) -> None:
    config = {**CONFIG, "advanced": {"spark": IMPATIENT}}
    with Runtime(tmp_path, config=config, environment={"LOG_LEVEL": "debug"}).open(publish=True) as session:
        session.transaction({"id": 1})
        assert not wait_until(lambda: "Removing executor" in session.connector.log, LATEST)
        session.transaction({"id": 2})
        assert session.finish().status == 0
    assert ledger_ids(tmp_path) == [1, 2]
