"""promtool, which checks and tests the rules of Prometheus, and a real Prometheus server."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.jars import go_program
from support.repository import REPOSITORY
from support.servers.server_process import free_address, running
from support.sessions.scraping import Scraped

RULES: Final = REPOSITORY / "deploy" / "prometheus" / "materialize-iceberg.rules.yaml"
WHAT: Final = "the tests' promtool"
SAMPLE: Final = re.compile(r'\{__name__="ALERTS", ([^}]*)\}')
LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def promtool() -> Path:
    return go_program("promtool", WHAT, "--all-tests")


def run_promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *arguments], check=False, capture_output=True, text=True)


def find_alarms(scrapes: Sequence[tuple[Scraped, float, int]], directory: Path) -> set[tuple[str, str]]:
    """Return the alarms that fire, with their tables, at the end of these scrapes.

    Each scrape has its time, in seconds since the epoch, and for how many minutes nothing changes afterwards. The real
    time between two scrapes does not matter.
    """
    minutes = sum(lasts for *_, lasts in scrapes)
    series: dict[tuple[str, frozenset[tuple[str, str]]], list[str]] = {}
    passed = 0
    for scraped, at, lasts in scrapes:
        began = passed * 60  # in the time of the test, which begins at 0
        for key, value in scraped.samples.items():
            shown = value - at + began if key[0].endswith("_timestamp_seconds") else value
            values = series.setdefault(key, [])
            values += ["_"] * (passed - len(values)) + [repr(shown)] * lasts
        passed += lasts
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": _name_series(name, labels), "values": " ".join(values)}
                    for (name, labels), values in series.items()
                ],
                "promql_expr_test": [
                    {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minutes - 1}m", "exp_samples": []}
                ],
            }
        ],
    }
    file = directory / "alarms.test.yaml"
    file.write_text(json.dumps(test))  # JSON is YAML
    return _read_alarms(run_promtool("test", "rules", str(file)))


def _name_series(name: str, labels: frozenset[tuple[str, str]]) -> str:
    return f"{name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels))}}}"


def _read_alarms(said: subprocess.CompletedProcess[str]) -> set[tuple[str, str]]:
    """Read them from what promtool says about samples that were not expected."""
    assert "exp: nil" in said.stderr or said.returncode == 0, said.stderr
    alarms = (dict(LABEL.findall(labels)) for labels in SAMPLE.findall(said.stderr))
    return {(alarm["alertname"], alarm.get("table", "")) for alarm in alarms}


@contextmanager
def prometheus_server(scraped: str, directory: Path) -> Iterator[str]:
    """A real server that scrapes this address each second, with the rules. Gives its address."""
    address, config = free_address(), directory / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(RULES)],
                "scrape_configs": [
                    {"job_name": "materialize-iceberg", "static_configs": [{"targets": [scraped]}]},
                ],
            }
        )
    )
    command = [
        str(go_program("prometheus", "the tests' Prometheus", "--all-tests")),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address={address}",
    ]
    with running(command, {}, f"http://{address}/-/ready", directory / "prometheus.log"):
        yield address
