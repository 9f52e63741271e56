"""The image of workers that compute, on a real node: a declared model's tokens are transformers', and the CUDA kernels
that the image brings along are those of its sources."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint
from tests.cluster.cluster import NAMESPACE
from tests.cluster.computing import expected_tokens, tokens_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import Installation, installed_on
from tests.cluster.node import Node

pytestmark = pytest.mark.timeout(1500)

_POOL = {
    "name": "cpu",
    "cells": 1,
    "threadsPerWorker": 1,
    "drainSeconds": 5,
    "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}},
}
_FLAGS = (
    f"--set-json=workers={json.dumps([_POOL])}",
    f"--set=limits.kvCacheBytes={32 * 1024**2}",
    "--set=profile=false",
)
_OF_CUDA = "from headway.kernels.cuda.kernels import gpu_kernels; print(gpu_kernels().build_stamp)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which everybody may read: transformers keeps weights to whoever wrote them, and the worker is somebody else."""
    directory = make_checkpoint(tmp_path_factory.mktemp("computed") / "tiny", "llama")
    for file in directory.iterdir():
        file.chmod(0o644)
    return directory


@pytest.fixture(scope="module")
def computing(model: Path, real_node: tuple[ControlPlane, Node], image: None) -> Iterator[Installation]:
    """Its one worker is of the image of workers, without an emulated device."""
    plane, here = real_node
    here.load(Path(os.environ["HEADWAY_WORKER_IMAGE"]))
    with installed_on(plane, here, model, *_FLAGS) as running:
        yield running


def test_its_tokens_are_those_of_transformers(computing: Installation, model: Path) -> None:
    assert not computing.declare(model.name)
    computing.wait_for(model.name, "Ready")
    with computing.client() as client:
        assert tokens_of(client, model.name) == expected_tokens(model)
        [worker] = client.status().controller.workers
    assert worker.models == (model.name,)


def test_the_worker_is_nobody_in_particular_and_was_started_once(computing: Installation) -> None:
    [pod] = computing.pods.of("worker")
    assert pod.num_starts == 1
    assert _in_worker(computing, "import os; print(os.getuid(), os.access('/opt/headway', os.W_OK))") == "10001 False"


def test_its_cuda_kernels_are_of_its_sources(computing: Installation) -> None:
    """Which is checked when they are loaded; that takes no GPU."""
    assert _in_worker(computing, _OF_CUDA).startswith("headway-cuda-")


def _in_worker(computing: Installation, program: str) -> str:
    [pod] = computing.pods.of("worker")
    command = ("exec", pod.name, f"--namespace={NAMESPACE}", "--", "python", "-c", program)
    result = computing.plane.kubectl(*command)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
