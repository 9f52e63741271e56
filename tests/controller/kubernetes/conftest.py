"""A model, and the controller that is told of it."""

from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint
from tests.controller.kubernetes.cluster import Cluster


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny", "llama")


@pytest.fixture
def cluster(checkpoint: Path) -> Cluster:
    return Cluster(checkpoint)
