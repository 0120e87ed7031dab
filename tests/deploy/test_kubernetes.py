"""The manifests for Kubernetes: commands and settings that there are, and parts that find each other."""

from typing import Any

import pytest
import yaml

from backstay.core.limits import Limits
from backstay.engine.engine import LAST_WORDS_SECONDS
from tests.deploy import dockerfile
from tests.deploy.configuration import DEPLOY, parsed, unknown_settings

FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
MANIFESTS: list[Any] = [one for file in FILES for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
OF_KIND = {kind: [one for one in MANIFESTS if one["kind"] == kind] for kind in {one["kind"] for one in MANIFESTS}}
RUNNING = [*OF_KIND["Deployment"], *OF_KIND["Job"]]


def name_of(manifest: Any) -> str:
    return str(manifest["metadata"]["name"])


def pod_of(manifest: Any) -> Any:
    return manifest["spec"]["template"]


def container_of(manifest: Any) -> Any:
    (container,) = pod_of(manifest)["spec"]["containers"]
    return container


def test_every_part_is_there() -> None:
    assert {name_of(one) for one in RUNNING} == {
        f"backstay-{part}" for part in ("worker", "server", "relay", "migrate")
    }


@pytest.mark.parametrize("manifest", RUNNING, ids=name_of)
def test_our_command_line_takes_the_command(manifest: Any) -> None:
    part = name_of(manifest).removeprefix("backstay-")
    context = parsed(container_of(manifest)["args"])
    assert context.info_name == {"server": "serve"}.get(part, part)
    ports = {port["name"]: port["containerPort"] for port in container_of(manifest).get("ports", [])}
    assert context.params.get("metrics_port") == ports.get("metrics")
    assert context.params.get("port") == ports.get("http")


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_what_they_are_told_are_settings(kind: str) -> None:
    (found,) = OF_KIND[kind]
    assert unknown_settings(found.get("data") or found["stringData"]) == set()
    for manifest in RUNNING:
        sources = container_of(manifest)["envFrom"]
        assert {"configMapRef": {"name": "backstay"}} in sources
        assert {"secretRef": {"name": "backstay"}} in sources


@pytest.mark.parametrize("manifest", OF_KIND["Deployment"], ids=name_of)
def test_what_runs_is_given_its_grace(manifest: Any) -> None:
    grace = pod_of(manifest)["spec"]["terminationGracePeriodSeconds"]
    before = container_of(manifest).get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
    assert grace - int(before["exec"]["command"][1]) > Limits().shutdown_seconds + 2 * LAST_WORDS_SECONDS


@pytest.mark.parametrize("manifest", OF_KIND["Deployment"], ids=name_of)
def test_a_deployment_finds_its_pods_and_a_probe_its_port(manifest: Any) -> None:
    assert manifest["spec"]["selector"]["matchLabels"] == pod_of(manifest)["metadata"]["labels"]
    container = container_of(manifest)
    ports = {port["name"] for port in container["ports"]}
    probes = [container[probe] for probe in container if probe.endswith("Probe")]
    assert probes
    assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_the_service_finds_the_server() -> None:
    (service,) = OF_KIND["Service"]
    (server,) = (one for one in OF_KIND["Deployment"] if name_of(one) == "backstay-server")
    assert service["spec"]["selector"].items() <= pod_of(server)["metadata"]["labels"].items()
    names = {port["name"] for port in container_of(server)["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= names


@pytest.mark.parametrize("manifest", RUNNING, ids=name_of)
def test_a_pod_may_do_little_else(manifest: Any) -> None:
    (user,) = dockerfile.said("USER")
    assert pod_of(manifest)["spec"]["securityContext"]["runAsUser"] == int(user)
    assert container_of(manifest)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod_of(manifest)["spec"]["automountServiceAccountToken"] is False
