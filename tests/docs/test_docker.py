"""compose.yaml needs nothing of the host but Docker. The manifests of docs/docker.md have the form of Kubernetes."""

import re
from typing import Final

import pytest
import yaml

from connector.cli.arguments import parse_arguments
from protocol.flow import Json
from support.repository import REPOSITORY

SERVICES: Final = {"s3", "catalog", "check", "send", "query"}
METRICS: Final = {"prometheus", "grafana"}


def compose() -> Json:
    return yaml.safe_load((REPOSITORY / "compose.yaml").read_text())


def find_build(name: str) -> Json:
    """How the image of a service is built: by itself, or by the one that is always started before it."""
    service = compose()["services"][name]
    if "build" in service:
        return service["build"]
    assert service["pull_policy"] == "never", "no registry has the image"
    [before] = (compose()["services"][each] for each in service["depends_on"])
    assert before["image"] == service["image"]
    return before["build"]


def manifests() -> list[Json]:
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)```", _page(), re.DOTALL | re.MULTILINE)]


def _page() -> str:
    return (REPOSITORY / "docs" / "docker.md").read_text()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_of_compose_works_where_docker_runs_in_a_virtual_machine(name: str) -> None:
    service = compose()["services"][name]
    assert service["network_mode"] == ("none" if name == "s3" else "service:s3"), "the host's network is another one"
    assert find_build(name)["network"] == "${BUILD_NETWORK:-default}"
    assert service.keys().isdisjoint({"ports", "user", "pid", "ipc", "devices"})
    assert service.get("volumes", []) in ([], ["./scripts:/scripts:ro"]), "only files of this repository"


def test_no_two_services_that_start_together_build_the_same_image() -> None:
    """Compose builds all images at once. The second one of a name could not be stored: it exists already."""
    built = [each["image"] for each in compose()["services"].values() if "build" in each and "profiles" not in each]
    assert sorted(built) == ["${IMAGE:-materialize-iceberg}", "${SERVERS_IMAGE:-materialize-iceberg-servers}"]


def test_compose_has_these_services() -> None:
    assert compose()["services"].keys() == SERVICES | METRICS


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_service_that_needs_the_host_is_started_only_by_name(name: str) -> None:
    """It scrapes a connector of the host, and a browser of the host looks at it."""
    service = compose()["services"][name]
    assert service["profiles"] == ["metrics"]
    assert service.keys().isdisjoint({"ports", "user", "pid", "ipc", "devices", "privileged"})
    assert all(volume.startswith("./deploy/") and volume.endswith(":ro") for volume in service["volumes"])
    told = f"{service.get('command')} {service.get('environment')}"
    assert "127.0.0.1" in told, "it listens on loopback only"


def test_the_servers_of_compose_have_the_versions_of_the_tests() -> None:
    built = (REPOSITORY / "image" / "servers.Dockerfile").read_text()
    [version] = re.findall(r"versitygw (v[\d.]+)", (REPOSITORY / "scripts" / "setup").read_text())
    assert f"ARG VERSITYGW={version}\n" in built
    assert "COPY tests/jars/rest-catalog.pom.xml" in built


def test_the_manifests_run_commands_that_exist_without_any_right() -> None:
    specs = [manifest["spec"] for manifest in manifests()]
    containers = [pod["containers"][0] for pod in (spec.get("template", {}).get("spec", spec) for spec in specs)]
    assert [manifest["kind"] for manifest in manifests()] == ["Job", "Pod"]
    for container in containers:
        parse_arguments(container.get("args", []))
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        # What Kubernetes' Pod Security Standard "restricted" asks for.
        assert (confined["runAsNonRoot"], confined["allowPrivilegeEscalation"]) == (True, False)
        assert (confined["capabilities"], confined["seccompProfile"]) == ({"drop": ["ALL"]}, {"type": "RuntimeDefault"})
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
