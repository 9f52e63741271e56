"""Tests of the chart: rendered by Helm, as processes of this machine, and on Kubernetes' control plane.

`make test-chart` and `make test-cluster` build the programs and name them; tests whose programs are not there are not
collected.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint
from tests.cluster import load
from tests.cluster.cluster import Cluster, installed
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import Installation, installed_on
from tests.cluster.node import Node, node
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack

_ON_KUBERNETES = [f"test_{part}.py" for part in ("install", "pools", "resources", "scale", "training", "uninstall")]
_NEEDS = {
    "HEADWAY_HELM": ["test_*.py"],
    "HEADWAY_KUBERNETES": _ON_KUBERNETES,
    "HEADWAY_NODE_DIR": ["test_node*.py", "test_policies.py", "test_churn.py", "test_worker_image.py"],
    "HEADWAY_KUBE_ROUTER": ["test_policies.py"],
    "HEADWAY_WORKER_IMAGE": ["test_worker_image.py"],
    "HEADWAY_CHURN_MINUTES": ["test_churn.py"],
    "HEADWAY_PREVIOUS": ["test_versions.py"],
}

collect_ignore_glob = [pattern for name, patterns in _NEEDS.items() if name not in os.environ for pattern in patterns]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that are small, and one that no four V100 hold."""
    directory = tmp_path_factory.mktemp("models")
    for name in ("tiny", "second"):
        make_checkpoint(directory / name, "llama")
    _copy_as_huge(directory / "tiny")
    return directory


@pytest.fixture(scope="session")
def timed_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for emulated devices, which take as long for a token as a V100 would: a worker is at a stream for as
    long as its client."""
    directory = tmp_path_factory.mktemp("timed-models")
    for name in ("tiny", "second"):
        write_model(directory / name)
    _copy_as_huge(directory / "tiny")
    return directory


def _copy_as_huge(model: Path) -> None:
    huge = model.with_name("huge")
    shutil.copytree(model, huge)
    config = json.loads((huge / "config.json").read_text())
    config |= {"hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 160}
    config |= {"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    (huge / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="session")
def cluster(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with installed(models, tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def real_node() -> Iterator[tuple[ControlPlane, Node]]:
    with node() as started:
        yield started


@pytest.fixture(scope="session")
def image(real_node: tuple[ControlPlane, Node]) -> None:
    """The slim image is on the node."""
    _, here = real_node
    here.load(Path(os.environ["HEADWAY_IMAGE"]))


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose answers may be long, and take as long as a V100 would take for them."""
    return write_model(tmp_path_factory.mktemp("long") / load.MODEL)


@pytest.fixture(scope="session")
def undisturbed(long_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What `headway up --emulate` answers on this machine, without Kubernetes."""
    state = tmp_path_factory.mktemp("up") / "state"
    stack = RunningStack(state, {load.MODEL: long_model}, "--emulate", "1xV100-16").start()
    try:
        return load.texts(stack.url)
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def installation(
    long_model: Path, undisturbed: dict[int, str], real_node: tuple[ControlPlane, Node], image: None
) -> Iterator[Installation]:
    """After `undisturbed`, so that two stacks don't share the machine."""
    with installed_on(*real_node, long_model) as running:
        yield running
