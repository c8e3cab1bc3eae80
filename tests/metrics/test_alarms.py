"""The alarms of deploy/prometheus do what their unit tests say, and each alarm is needed by one of them."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from support.servers.promtool import RULES, promtool, run_promtool

pytestmark = pytest.mark.slow

UNIT_TESTS: Final = RULES.with_name("materialize-iceberg.test.yaml")
NEVER: Final = "vector(1) > 2"


@pytest.fixture(scope="module", autouse=True)
def _needs_promtool() -> None:
    promtool()


def test_prometheus_accepts_the_config_and_its_rules() -> None:
    config = RULES.with_name("prometheus.yml")
    assert "is valid prometheus config file syntax" in run_promtool("check", "config", str(config)).stdout
    assert "SUCCESS: 20 rules found" in run_promtool("check", "rules", str(RULES)).stdout


def test_the_alarms_are_raised_when_they_should_be() -> None:
    assert run_promtool("test", "rules", str(UNIT_TESTS)).returncode == 0


def test_the_unit_tests_miss_no_alarm_that_is_never_raised(tmp_path: Path) -> None:
    (tmp_path / UNIT_TESTS.name).write_text(UNIT_TESTS.read_text())
    rules: Any = yaml.safe_load(RULES.read_text())
    survivors = []
    for rule in rules["groups"][0]["rules"]:
        expression, rule["expr"] = rule["expr"], NEVER
        (tmp_path / RULES.name).write_text(yaml.safe_dump(rules))
        if run_promtool("test", "rules", str(tmp_path / UNIT_TESTS.name)).returncode == 0:
            survivors.append(rule["alert"])
        rule["expr"] = expression
    assert survivors == []
