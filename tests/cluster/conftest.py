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
from tests.cluster.cluster import Cluster, installed

_ON_KUBERNETES = [f"test_{part}.py" for part in ("install", "pools", "resources", "scale", "training", "uninstall")]
_NEEDS = {
    "HEADWAY_HELM": ["test_*.py"],
    "HEADWAY_KUBERNETES": _ON_KUBERNETES,
    "HEADWAY_NODE_DIR": ["test_node.py"],
}

collect_ignore_glob = [pattern for name, patterns in _NEEDS.items() if name not in os.environ for pattern in patterns]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that are small, and one that no four V100 hold."""
    directory = tmp_path_factory.mktemp("models")
    for name in ("tiny", "second"):
        make_checkpoint(directory / name, "llama")
    shutil.copytree(directory / "tiny", directory / "huge")
    config = json.loads((directory / "huge/config.json").read_text())
    config |= {"hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 160}
    config |= {"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    (directory / "huge/config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="session")
def cluster(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with installed(models, tmp_path_factory.mktemp("cluster")) as running:
        yield running
