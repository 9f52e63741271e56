"""The pods that pools make their cells of."""

from pathlib import Path

import pytest

from headway.controller.kubernetes.cell_pod import CellTemplate, cell_pod
from headway.controller.kubernetes.pool_resource import PoolResource
from headway.core.errors import InvalidArgumentError
from tests.controller.kubernetes.planning import TEMPLATE


def test_a_cell_with_gpus_asks_for_them() -> None:
    spec = {"gpusPerCell": 8, "nodeSelector": {"gpu": "h100"}, "resources": {"limits": {"memory": "1Ti"}}}
    pool = PoolResource(name="h100", uid="u", generation=1, version="1", spec=spec, status={})
    pod = cell_pod(pool, TEMPLATE, name="h100-3")
    [container] = pod["spec"]["containers"]
    assert container["resources"] == {"limits": {"memory": "1Ti", "nvidia.com/gpu": 8}}
    flags = ["--workers", "8", "--pool", "h100", "--device", "cuda", "--drain-s", "60"]
    assert container["args"] == ["--port", "9000", *flags]
    assert pod["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u"
    [original] = TEMPLATE.pod["spec"]["containers"]
    assert original["args"] == ["--port", "9000"]


def test_a_worker_of_a_cell_may_have_several_of_its_gpus() -> None:
    spec = {"gpusPerCell": 8, "gpusPerWorker": 4, "engine": "vllm", "image": {"repository": "r/vllm", "tag": "1"}}
    pool = PoolResource(name="h100", uid="u", generation=1, version="1", spec=spec, status={})
    [container] = cell_pod(pool, TEMPLATE, name="h100-0")["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    flags = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    assert (flags["--workers"], flags["--engine"], flags["--num-devices"]) == ("2", "vllm", "4")
    assert [port["name"] for port in container["ports"]][-2:] == ["metrics-0", "metrics-1"]


def test_a_cell_that_is_to_end_at_once_is_told_so() -> None:
    pool = PoolResource(name="h100", uid="u", generation=1, version="1", spec={"drainSeconds": 0}, status={})
    pod = cell_pod(pool, TEMPLATE, name="h100-0")
    [container] = pod["spec"]["containers"]
    assert container["args"][-2:] == ["--drain-s", "0"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    ("real", "tag"), [("r:5000/headway-worker@sha256:12", "3"), ("headway-worker@sha256:12", "3"), ("r:5000/w:2", "2")]
)
def test_an_image_without_a_tag_has_the_release_s(real: str, tag: str) -> None:
    spec = {"image": {"repository": "r:5000/vllm"}}
    pool = PoolResource(name="h100", uid="u", generation=1, version="1", spec=spec, status={})
    labels = {"app.kubernetes.io/version": "3"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "cell", "image": real}]}}
    template = CellTemplate(emulated_image="", pod=pod)
    [container] = cell_pod(pool, template, name="h100-0")["spec"]["containers"]
    assert container["image"] == f"r:5000/vllm:{tag}"


@pytest.mark.parametrize("text", ["pod: 1", "[", "emulated_image: x\npod: {spec: {containers: []}}", "{}"])
def test_a_template_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "cell.yaml").write_text(text)
    with pytest.raises(InvalidArgumentError, match="no template of cells"):
        CellTemplate.read(tmp_path / "cell.yaml")


def test_a_cell_that_stands_in_for_a_server_is_told_where_that_is_and_its_key() -> None:
    spec = {"engine": "vllm-server", "engineUrl": "http://a:8000", "engineModel": "chat", "engineKeySecret": "vllm-key"}
    spec |= {"engineEvents": "tcp://a:5557"}
    pool = PoolResource(name="there", uid="u", generation=1, version="1", spec=spec, status={})
    [container] = cell_pod(pool, TEMPLATE, name="there-0")["spec"]["containers"]
    told = ["--engine", "vllm-server", "--engine-url", "http://a:8000", "--engine-model", "chat"]
    told += ["--engine-events", "tcp://a:5557"]
    assert container["args"][-len(told) :] == told
    [key] = container["env"]
    assert key["name"] == "HEADWAY_ENGINE_API_KEY"
    assert key["valueFrom"] == {"secretKeyRef": {"name": "vllm-key", "key": "api-key"}}
