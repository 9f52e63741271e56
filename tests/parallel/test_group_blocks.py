"""A group's blocks are those of one worker, wherever their parts lie."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import ParallelConfig
from headway.core.request import SamplingParams
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.shard_runner import ShardRunner
from tests.checkpoints import make_checkpoint
from tests.parallel.ranks import run_ranks
from tests.runner.stepper import Stepper

NUM_BLOCKS = 24
NUM_HOST_BLOCKS = 6
PROMPT = [7 * index % 512 for index in range(70)]
LAYOUTS = {
    "tp 2": ParallelConfig(tp=2),
    "tp 4, KV heads on several ranks": ParallelConfig(tp=4),
    "pp 2": ParallelConfig(pp=2),
    "cp 2": ParallelConfig(cp=2),
    "cp 2, weights split, tp 2": ParallelConfig(cp=2, tp=2, cp_ffn="tensor"),
    "pp 2 x cp 2": ParallelConfig(pp=2, cp=2),
}


def exchange_in(group: RankGroup, directory: Path) -> tuple[bool, list[np.ndarray]] | None:
    """Whether blocks that are written are read again; and those that a prompt has filled."""
    checkpoint, cp = read_checkpoint(directory), group.parallel.cp
    sizes = {"num_blocks": NUM_BLOCKS // cp, "num_host_blocks": NUM_HOST_BLOCKS // cp}
    if group.rank > 0:
        run_rank(Listener(group), {0: ShardRunner(checkpoint, group=group, **sizes)})
        return None
    runner = ModelRunner(checkpoint, group=group, **sizes)
    generator = np.random.default_rng(3)
    written = [generator.integers(0, 255, runner.blocks.block_bytes).astype(np.uint8) for _ in range(3)]
    places = [(5, False), (NUM_BLOCKS - 1, False), (NUM_BLOCKS // 2, False)]
    runner.blocks.write(places, [content.data for content in written])
    backwards = runner.blocks.read(places[::-1])
    is_same = all(np.array_equal(found, content) for found, content in zip(backwards, reversed(written), strict=True))
    return is_same, filled_by(runner)


def filled_by(runner: ModelRunner) -> list[np.ndarray]:
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    sequence = stepper.add(PROMPT, SamplingParams(max_tokens=1, temperature=0.0))
    stepper.step()
    full = sequence.block_table[: len(PROMPT) // 16]
    blocks = runner.blocks.read([(block, False) for block in full])
    runner.close()
    return [np.array(block) for block in blocks]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), "llama")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_read_and_written_whole(directory, layout):
    is_same, found = run_ranks(LAYOUTS[layout], exchange_in, directory)[0]
    assert is_same
    expected = filled_by(ModelRunner(read_checkpoint(directory), num_blocks=NUM_BLOCKS))
    assert len(found) == len(expected) > 2
    for own, theirs in zip(found, expected, strict=True):
        values = [torch.from_numpy(block.copy()).view(torch.float32) for block in (own, theirs)]
        torch.testing.assert_close(*values, atol=1e-4, rtol=1e-4)
