"""What Helm makes of the chart: golden renderings, Kubernetes' own schemas, and what every pod keeps to."""

import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from headway.controller.kubernetes.cell_pod import CellTemplate, cell_pod
from headway.controller.kubernetes.event import event_of
from headway.controller.kubernetes.fetch_job import FetchTemplate, ModelFetch, fetch_job
from headway.controller.kubernetes.model_resource import MODEL_DEPLOYMENT, ModelResource
from headway.controller.kubernetes.pool_resource import PoolResource
from headway.core.model_uri import ModelUri
from tests.cli.test_manifest import manifest
from tests.cluster.arrows import COMPONENTS, callers
from tests.cluster.chart import CHART, KUBE_VERSION, ROOT, VALUES, helm, objects, pods, render, without_secrets
from tests.cluster.rights import RIGHTS_ON_JOBS, RIGHTS_ON_MODELS, RIGHTS_ON_POOLS

GOLDEN = Path(__file__).parent / "golden"
KUBERNETES = ("1.31.0", "1.34.0", "1.37.0")
_SCHEMAS = Path(os.environ["HEADWAY_SCHEMAS"]) / "kubernetes_validate/kubernetes-json-schema"
# Of operators, of the Gateway API and of cert-manager, whose schemas Kubernetes has not.
_FOREIGN = ("PodMonitor", "PrometheusRule", "HTTPRoute", "Certificate", "Issuer")
_UNPACKED = ROOT / "build/prometheus/usr/bin/promtool"
PROMTOOL = shutil.which("promtool") or (str(_UNPACKED) if _UNPACKED.exists() else None)

_RIGHTS = {
    "resources": RIGHTS_ON_MODELS | RIGHTS_ON_JOBS,
    "pools": RIGHTS_ON_MODELS | RIGHTS_ON_POOLS | RIGHTS_ON_JOBS,
}

by_values = pytest.mark.parametrize("name", sorted(VALUES))


@by_values
def test_the_rendering_is_the_golden_one(name: str) -> None:
    """UPDATE_GOLDEN=1 writes it anew; the difference is then for people to read. Dashboards and rules are files of the
    repository, see below."""
    changes = {"monitoring": {"dashboards": {"enabled": False}, "rules": {"enabled": False}}}
    rendered, path = without_secrets(render(VALUES[name], changes=changes)), GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered)
    assert rendered == path.read_text()


@by_values
def test_helm_finds_nothing_to_mend(name: str) -> None:
    result = helm("lint", "--strict", str(CHART), *KUBE_VERSION, "--values", str(VALUES[name]))
    assert result.returncode == 0, result.stdout


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubernetes' schemas, by version. They refer to files beside them, and not by addresses, which kubeconform would
    ask the network for."""
    directory = tmp_path_factory.mktemp("schemas")
    for version in KUBERNETES:
        (directory / f"v{version}").mkdir()
        for path in (_SCHEMAS / f"v{version}-local-strict").iterdir():
            text = path.read_text().replace("/api/_definitions.json", "_definitions.json")
            (directory / f"v{version}" / path.name).write_text(re.sub(r'"\$id": "https:[^"]*"', '"$comment": ""', text))
    return directory


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field(version: str, schemas: Path) -> None:
    _check_fields("\n---\n".join(map(render, VALUES.values())), version, schemas)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field_of_an_event(version: str, schemas: Path) -> None:
    event = event_of(
        MODEL_DEPLOYMENT,
        name="chat",
        uid="1",
        namespace="serving",
        is_warning=True,
        reason="Invalid",
        message="x" * 2000,
        now="2026-11-26T12:00:00Z",
    )
    _check_fields(yaml.safe_dump(event), version, schemas)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field_of_a_training_run(version: str, schemas: Path) -> None:
    _check_fields(manifest(Path("/shared/training/train-20261127T020000-0a1b2c")), version, schemas)


def _check_fields(text: str, version: str, schemas: Path) -> None:
    location = f"{schemas}/{{{{.NormalizedKubernetesVersion}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [os.environ["HEADWAY_KUBECONFORM"], "-strict", "-kubernetes-version", version]
    result = subprocess.run(
        [*command, "-skip", ",".join(_FOREIGN), "-schema-location", location, "-summary"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Valid: 0" not in result.stdout


@by_values
def test_pods_keep_to_the_restricted_standard(name: str) -> None:
    for owner, pod in pods(objects(render(VALUES[name]))).items():
        assert pod["securityContext"]["runAsNonRoot"], owner
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        assert not pod["automountServiceAccountToken"], owner
        assert not pod["enableServiceLinks"], f"a Service named headway would give {owner} HEADWAY_PORT=tcp://..."
        for container in pod["containers"]:
            security = container["securityContext"]
            assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True), owner
            assert security["capabilities"] == {"drop": ["ALL"]}, owner


@by_values
def test_nobody_has_rights_but_the_controller_on_its_resources(name: str) -> None:
    found = objects(render(VALUES[name]))
    granting = [document for document in found if document["kind"].endswith(("Role", "Binding"))]
    if name not in _RIGHTS:
        assert granting == []
        return
    [role, binding] = granting
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert {
        (*rule["apiGroups"], *rule["resources"], verb) for rule in role["rules"] for verb in rule["verbs"]
    } == _RIGHTS[name]
    [subject] = binding["subjects"]
    accounts = {owner: pod["serviceAccountName"] for owner, pod in pods(found).items()}
    assert [owner for owner, account in accounts.items() if account == subject["name"]] == ["headway-controller"]


@by_values
def test_objects_have_names_of_their_own(name: str) -> None:
    found = [(document["kind"], document["metadata"]["name"]) for document in objects(render(VALUES[name]))]
    assert len(found) == len(set(found))


@by_values
def test_selectors_select_one_component(name: str) -> None:
    """Deployments of one release would take each other's pods otherwise."""
    found = objects(render(VALUES[name]))
    selected = [document["spec"]["selector"]["matchLabels"] for document in found if document["kind"] in _OWNERS]
    assert all("app.kubernetes.io/component" in labels for labels in selected)
    assert len({tuple(sorted(labels.items())) for labels in selected}) == len(selected)


_OWNERS = ("Deployment", "StatefulSet")


@pytest.mark.parametrize("release", ["headway", "a", "x" * 53])
def test_names_fit_whatever_the_release_is_called(release: str) -> None:
    for document in objects(render(VALUES["gpu"], release=release)):
        name = document["metadata"]["name"]
        assert len(name) <= (52 if document["kind"] == "StatefulSet" else 63), name
        for label, value in document["metadata"]["labels"].items():
            assert len(value) <= 63, label


def test_pods_of_the_gateway_are_replaced_with_its_keys() -> None:
    first, other, again = (_template_of_the_gateway(apiKeys=[key]) for key in ("one", "another", "one"))
    assert first != other
    assert first == again


def _template_of_the_gateway(**values: Any) -> dict[str, Any]:
    found = objects(render(VALUES["small"], changes={"gateway": values}))
    [template] = [
        each["spec"]["template"]
        for each in found
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "headway-gateway")
    ]
    return dict(template)


@pytest.mark.parametrize("name", ["small", "pools"])
def test_annotations_of_pods_are_as_they_were_given(name: str) -> None:
    annotations = {"example.com/labels": "a", "example.com/text": "labels: b"}
    found = objects(render(VALUES[name], changes={"podAnnotations": annotations}))
    cells = [each["spec"]["template"] for each in found if each["kind"] == "StatefulSet"]
    files = [each["data"]["cell.yaml"] for each in found if "cell.yaml" in each.get("data", {})]
    cells += [yaml.safe_load(file)["pod"] for file in files]
    assert {cell["metadata"]["labels"].get("headway/role") for cell in cells} == {"worker", None}
    assert all(cell["metadata"]["annotations"] == annotations for cell in cells)


def test_a_pool_that_does_not_drain_ends_at_once() -> None:
    [pool] = yaml.safe_load(VALUES["small"].read_text())["workers"]
    found = objects(render(VALUES["small"], changes={"workers": [pool | {"drainSeconds": 0}]}))
    [cell] = [spec for name, spec in pods(found).items() if "worker" in name]
    assert cell["terminationGracePeriodSeconds"] == 30
    [container] = cell["containers"]
    assert container["args"][container["args"].index("--drain-s") + 1] == "0"


def test_dashboards_and_rules_are_those_of_the_repository() -> None:
    found = objects(render(VALUES["gpu"]))
    written = {path.name: path.read_text() for path in (ROOT / "deploy/grafana/json").glob("*.json")}
    maps = [each for each in found if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    shown = {name: text for each in maps for name, text in each["data"].items()}
    assert shown == {name: text.replace('"uid": "headway"', '"uid": "prometheus"') for name, text in written.items()}
    [rule] = [document for document in found if document["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on PATH nor under build/")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    [rule] = [document for document in objects(render(VALUES["gpu"])) if document["kind"] == "PrometheusRule"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule["spec"]))
    result = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_with_tls_every_process_has_certificates_and_no_probe_needs_one() -> None:
    for owner, pod in pods(objects(render(VALUES["tls"]))).items():
        [volume] = [volume for volume in pod["volumes"] if volume["name"] == "tls"]
        assert volume["secret"]["secretName"] == "headway-tls", owner
        for container in pod["containers"]:
            [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "tls"]
            assert "subPath" not in mount, f"{owner} would keep the certificate that it began with"
            files = {each["value"] for each in container["env"] if each["name"].startswith("HEADWAY_TLS_")}
            assert all(path.startswith(f"{mount['mountPath']}/") for path in files), owner
            assert len(files) == (1 if owner == "headway-test" else 3), owner
            assert all("grpc" not in probe for name, probe in container.items() if name.endswith("Probe")), owner


@pytest.mark.parametrize(
    ("tls", "kinds"),
    [
        ({"existingSecret": "own"}, []),
        ({"certManager": {"issuer": {"name": "internal"}}}, ["Certificate"]),
        ({}, ["Certificate", "Certificate", "Issuer", "Issuer"]),
    ],
    ids=["a given secret", "a given issuer", "an authority of the release's own"],
)
def test_certificates_are_asked_for_where_none_are_given(tls: dict[str, Any], kinds: list[str]) -> None:
    found = objects(render(VALUES["small"], changes={"tls": {"enabled": True, **tls}}))
    made = [each for each in found if each["apiVersion"].startswith("cert-manager.io/")]
    assert sorted(each["kind"] for each in made) == kinds
    if kinds:
        [named] = [
            each["spec"] for each in made if each["metadata"]["name"] == "headway" and "dnsNames" in each["spec"]
        ]
        assert "headway" in named["dnsNames"], "the name that processes call each other by"
        assert named["secretName"] in {
            volume["secret"]["secretName"]
            for pod in pods(found).values()
            for volume in pod["volumes"]
            if volume["name"] == "tls"
        }


def test_every_worker_is_scraped() -> None:
    found = objects(render(VALUES["gpu"]))
    [monitor] = [document for document in found if document["kind"] == "PodMonitor"]
    scraped = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    assert scraped == {
        port["name"] for pod in pods(found).values() for port in _ports(pod) if "metrics" in port["name"]
    }


def test_only_those_who_need_it_reach_a_service() -> None:
    """Who may call whom by the permissions of its processes, and nobody else."""
    arrows = {
        (_component(peer["podSelector"]), policy["metadata"]["name"].removeprefix("headway-"))
        for policy in objects(render(VALUES["emulated"]))
        if policy["kind"] == "NetworkPolicy"
        for rule in policy["spec"].get("ingress") or []
        for peer in rule.get("from", [])
        if "podSelector" in peer
    }
    assert arrows == {(caller, called) for called in COMPONENTS for caller in callers(called)} | {("test", "gateway")}


def _component(selector: dict[str, Any]) -> str:
    labels: dict[str, str] = selector["matchLabels"]
    return labels.get("headway/role") or labels["app.kubernetes.io/component"]


def _ports(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [port for container in pod["containers"] for port in container.get("ports", [])]


_WITH_VLLM = {"engine": "vllm", "gpusPerWorker": 4, "image": {"repository": "registry.example/vllm", "tag": "1"}}


@pytest.mark.parametrize("more", [{}, _WITH_VLLM], ids=["headway", "vllm"])
def test_a_cell_that_the_controller_makes_is_as_the_charts_own(schemas: Path, more: dict[str, Any]) -> None:
    """Of the pool of ci/gpu.yaml: what a cell of a StatefulSet has, but for what that itself adds."""
    values = yaml.safe_load(VALUES["gpu"].read_text())
    [own] = values["workers"]
    own |= more
    del values["limits"]["tp"]  # of vLLM's workers it is what their pool says
    changes = {"workers": [], "models": [], "modelDeployments": {"enabled": True}, "workerPools": {"enabled": True}}
    with_pools = objects(render(VALUES["gpu"], changes=changes))
    without = objects(render(changes=values))
    [text] = [each["data"]["cell.yaml"] for each in with_pools if "cell.yaml" in each.get("data", {})]
    template = CellTemplate(**yaml.safe_load(text))
    pool = PoolResource(name="h100", uid="1", generation=1, version="1", spec=own, status={})
    made = cell_pod(pool, template, name="h100-0")
    _check_fields(yaml.safe_dump(made), KUBERNETES[-1], schemas)
    [chart] = [each["spec"]["template"] for each in without if each["kind"] == "StatefulSet" and "worker" in str(each)]
    ours, theirs = made["spec"], chart["spec"]
    assert ours.keys() == theirs.keys()
    [our_cell], [their_cell] = ours.pop("containers"), theirs.pop("containers")
    ours_only = our_cell["args"].pop(our_cell["args"].index("--ready-without-plan"))  # the other release has models
    assert ours_only not in their_cell["args"]
    assert _pairs(our_cell.pop("args")) == _pairs(their_cell.pop("args"))
    assert our_cell == their_cell
    assert ours == theirs
    labels = made["metadata"]["labels"]
    assert labels["serving.headway.dev/pool"] == "h100"
    assert labels["headway/role"] == chart["metadata"]["labels"]["headway/role"]


def test_a_job_that_fetches_is_restricted_and_knows_no_secret_of_the_release(schemas: Path) -> None:
    changes = {
        "modelStorage": {"fetch": {"serviceAccountName": "cloud", "env": [{"name": "HTTPS_PROXY", "value": "p"}]}}
    }
    [text] = [
        each["data"]["fetch.yaml"]
        for each in objects(render(VALUES["pools"], changes=changes))
        if "fetch.yaml" in each.get("data", {})
    ]
    template = FetchTemplate(job=yaml.safe_load(text))
    resource = {
        "metadata": {
            "name": "chat",
            "uid": "1",
            "generation": 1,
            "creationTimestamp": "2026-11-28T12:00:00Z",
            "resourceVersion": "1",
        }
    }
    fetch = ModelFetch(uri=ModelUri.parse("hf://acme/tiny"), sha256="0" * 64)
    to, report = Path("/models/fetched/tiny"), Path("/models/fetched/tiny.json")
    job = fetch_job(fetch, template, to=to, report=report, owners=[ModelResource.of(resource)])
    _check_fields(yaml.safe_dump(job), KUBERNETES[-1], schemas)
    pod = job["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("cloud", False)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    security = container["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {each["name"] for each in container["env"]} == {
        "HOME",
        "HF_HUB_DISABLE_TELEMETRY",
        "DOCKER_CONFIG",
        "HTTPS_PROXY",
    }
    assert {volume["name"] for volume in pod["volumes"]} == {"tmp", "models", "registry"}
    command = get_command(import_module("headway.cli.fetch").app)
    assert command.make_context("fetch", container["args"]).params["report"] == report, "the command takes what it gets"


def _pairs(arguments: list[str]) -> set[tuple[str, str]]:
    return set(zip(arguments[::2], arguments[1::2], strict=True))
