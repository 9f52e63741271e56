"""Stacks that several tests share. They run one at a time: each uses both cores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack

OPTIONS = ("--max-model-len", "1024", "--no-profile")
"""Of stacks whose predictions may be estimates; those of test_parallel.py and tests/cli/test_real_stack.py measure."""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights."""
    return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama", max_position_embeddings=2048)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    """One model on one worker."""
    running = RunningStack(tmp_path_factory.mktemp("stack"), {"tiny": checkpoint}, *OPTIONS).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    """One model on two workers."""
    running = RunningStack(tmp_path_factory.mktemp("pair"), {"tiny": checkpoint}, "--workers", "2", *OPTIONS).start()
    yield running
    running.stop()
