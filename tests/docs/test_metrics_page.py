"""docs/metrics.md, the metrics of the code, the alarms and the dashboard name the same things."""

import json
import re
from typing import Any, Final

import pytest
import yaml

from connector.config.metrics_options import parse_metrics_file
from connector.metrics.definitions import ALL, PREFIX, Kind
from support.repository import REPOSITORY

PAGE: Final = (REPOSITORY / "docs" / "metrics.md").read_text()
MIGRATION: Final = (REPOSITORY / "docs" / "migration.md").read_text()
RULES: Final = {
    rule["alert"]: rule
    for group in yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "materialize-iceberg.rules.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
}
TESTS_OF_RULES: Final = (REPOSITORY / "deploy" / "prometheus" / "materialize-iceberg.test.yaml").read_text()
DASHBOARD: Final[Any] = json.loads((REPOSITORY / "deploy" / "grafana" / "materialize-iceberg.json").read_text())
METRIC: Final = re.compile(r"^\| `(\w+)` \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", re.MULTILINE)
ALARM: Final = re.compile(r"^\| `(Iceberg\w+)` \| (\w+) \| ", re.MULTILINE)
LINK: Final = re.compile(r"\]\(([^)]*#[^)]*)\)")
CODE: Final = re.compile(r"`(\w+)`")
USED: Final = re.compile(rf"\b{PREFIX}(\w+)")
SUFFIXES_OF_HISTOGRAMS: Final = re.compile(r"_(bucket|sum|count)$")

BY_NAME: Final = {metric.name + ("_total" if metric.kind is Kind.COUNTER else ""): metric for metric in ALL}
DOCUMENTED: Final = {row[0]: row[1:] for row in METRIC.findall(PAGE)}


def metric_of(name: str) -> str:
    """The metric that a name of its values belongs to."""
    return name if name in BY_NAME else SUFFIXES_OF_HISTOGRAMS.sub("", name)


def used_in(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return {metric_of(name) for name in USED.findall(expression)}


def expressions(panels: list[Any]) -> list[str]:
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_page_lists_the_metrics_of_the_code() -> None:
    assert len(METRIC.findall(PAGE)) == len(DOCUMENTED) == len(ALL)
    assert DOCUMENTED.keys() == BY_NAME.keys()


def test_the_page_of_migration_names_metrics_of_the_code_as_prometheus_has_them() -> None:
    assert {"rows_committed_total", "transaction_rows"} < used_in(MIGRATION) <= BY_NAME.keys()
    assert {word for word in re.findall(r"\w+", MIGRATION) if metric_of(word) in BY_NAME} == set()


def test_the_alarm_of_a_task_that_is_down_looks_at_files_of_the_names_that_are_given_as_examples() -> None:
    with pytest.raises(ValueError, match="such as") as error:
        parse_metrics_file("other")
    [pattern] = re.findall(r'file=~"(.*?)"', RULES["IcebergTaskDown"]["expr"])
    for text in (str(error.value), PAGE):
        assert re.fullmatch(pattern, re.findall(r"/var/lib/\S+\.prom", text)[0])


@pytest.mark.parametrize("name", BY_NAME)
def test_the_page_says_the_labels_and_the_unit_of_a_metric(name: str) -> None:
    metric, (labels, unit, cause, _) = BY_NAME[name], DOCUMENTED[name]
    assert CODE.findall(labels) == [*metric.labels]
    assert metric.unit in unit
    assert unit.strip()
    assert ("a histogram" in unit) == (metric.kind is Kind.HISTOGRAM)
    assert cause.strip()
    assert not metric.unit or metric.name.endswith(f"_{metric.unit}")


@pytest.mark.parametrize("name", BY_NAME)
def test_the_page_names_the_alarms_that_use_a_metric(name: str) -> None:
    uses = [alarm for alarm, rule in RULES.items() if name in used_in(rule["expr"])]
    *_, named = DOCUMENTED[name]
    # commit_failing and sign_in_refused also keep alarms of other metrics silent.
    assert set(CODE.findall(named)) <= set(uses)
    assert bool(CODE.findall(named)) == bool(uses)


@pytest.mark.parametrize("alarm", RULES)
def test_an_alarm_is_on_the_page_uses_known_metrics_and_has_a_test(alarm: str) -> None:
    rule = RULES[alarm]
    assert dict(ALARM.findall(PAGE))[alarm] == rule["labels"]["severity"]
    assert used_in(rule["expr"]) <= BY_NAME.keys()
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert f'alertname="{alarm}"' in TESTS_OF_RULES


@pytest.mark.parametrize("alarm", RULES)
def test_an_alarm_names_the_section_to_which_the_page_links(alarm: str) -> None:
    """test_links.py finds the sections of the page's links."""
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{alarm}` |")]
    what_to_do = row.split(" | ")[-1]
    assert RULES[alarm]["annotations"]["runbook"] in {f"docs/{link}" for link in LINK.findall(what_to_do)}


def test_the_page_lists_no_other_alarms() -> None:
    assert dict(ALARM.findall(PAGE)).keys() == RULES.keys()
    assert {alarm for *_, named in DOCUMENTED.values() for alarm in CODE.findall(named)} <= RULES.keys()


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    assert {name for each in expressions(DASHBOARD["panels"]) for name in used_in(each)} == BY_NAME.keys()


def test_a_panel_tells_tables_of_two_tasks_with_one_name_apart() -> None:
    """A task for tests often writes tables of the same names as the one that it tests."""
    targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    grouped = [group for target in targets for group in re.findall(r"by \(([^)]*)\)", target["expr"])]
    assert "task, table" in grouped
    assert not [group for group in grouped if "table" in group and "task" not in group]
    legends = [target["legendFormat"] for target in targets if "{{table}}" in target["legendFormat"]]
    assert legends
    assert all("{{task}}" in legend for legend in legends)


def test_each_panel_has_a_place_of_its_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert all(x < 24 for x, _ in taken)


def test_a_panel_is_known_by_its_title() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("title", [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "table"])
def test_a_table_of_the_dashboard_formats_and_sorts_columns_that_it_has(title: str) -> None:
    panel = next(panel for panel in DASHBOARD["panels"] if panel["title"] == title)
    (organize,) = (each["options"] for each in panel["transformations"] if each["id"] == "organize")
    columns = set(organize["renameByName"].values())
    assert {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]} <= columns
    assert {each["displayName"] for each in panel["options"].get("sortBy", ())} <= columns
    assert organize["renameByName"].keys() == organize["indexByName"].keys()
    queried = {"Value"} | {f"Value #{target['refId']}" for target in panel["targets"]}
    assert {name for name in organize["renameByName"] if name.startswith("Value")} <= queried


@pytest.mark.parametrize("alarm", [name for name, rule in RULES.items() if rule["labels"]["severity"] == "critical"])
def test_the_first_panels_tell_of_each_critical_alarm(alarm: str) -> None:
    first = [panel for panel in DASHBOARD["panels"] if panel["type"] == "stat" and panel["gridPos"]["y"] == 1]
    shown = {name for each in expressions(first) for name in used_in(each) | set(re.findall(r"\bup\b", each))}
    expression = RULES[alarm]["expr"]
    assert shown & (used_in(expression) | set(re.findall(r"\bup\b", expression)))


def test_compose_mounts_files_that_exist() -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    mounted = {
        volume.split(":")[0]: volume.split(":")[1]
        for name in ("prometheus", "grafana")
        for volume in services[name]["volumes"]
    }
    assert all((REPOSITORY / path).exists() for path in mounted)
    provider = REPOSITORY / "deploy" / "grafana" / "provisioning" / "dashboards" / "materialize-iceberg.yaml"
    directory = yaml.safe_load(provider.read_text())["providers"][0]["options"]["path"]
    assert mounted["./deploy/grafana/materialize-iceberg.json"] == f"{directory}/materialize-iceberg.json"
    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"] == ["metrics"]
