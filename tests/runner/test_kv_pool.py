import numpy as np
import psutil
import pytest
import torch

from headway.core.parallel_config import ParallelConfig
from headway.core.shard import shard_kv_bytes_per_token, shard_of
from headway.runner.kv_pool import KvPool
from tests.specs import llama_spec

SPEC = llama_spec(
    vocab_size=16,
    hidden_size=512,
    num_layers=8,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
    intermediate_size=64,
    max_position=128,
)


def test_pool_is_one_allocation_that_costs_nothing_until_it_is_used():
    before_bytes = psutil.Process().memory_info().rss
    pool = KvPool(SPEC, num_blocks=8192, block_size=16, device=torch.device("cpu"))
    assert pool.memory.nbytes == 8192 * 16 * SPEC.kv_bytes_per_token
    assert psutil.Process().memory_info().rss - before_bytes < 64 << 20


def test_layers_are_views_of_keys_and_values():
    pool = KvPool(SPEC, num_blocks=4, block_size=16, device=torch.device("cpu"))
    assert len(pool.layers) == 8
    keys, values = pool.layers[3]
    assert keys.shape == values.shape == (4, 4, 16, 64)
    values.fill_(5.0)
    assert (pool.memory[3, 1] == 5.0).all()


def test_a_rank_holds_the_heads_of_its_part():
    shard = shard_of(SPEC, ParallelConfig(tp=3), rank=0)
    pool = KvPool(SPEC, shard=shard, num_blocks=4, block_size=16, device=torch.device("cpu"), num_host_blocks=2)
    keys, values = pool.layers[3]
    assert keys.shape == values.shape == (4, 2, 16, 64)
    assert pool.memory.nbytes == 4 * 16 * shard_kv_bytes_per_token(SPEC, shard)
    assert pool.host_memory.nbytes == 2 * 16 * shard_kv_bytes_per_token(SPEC, shard)


@pytest.fixture
def pool() -> KvPool:
    """Every block full of its own number, blocks of the host of 100 more."""
    pool = KvPool(SPEC, num_blocks=6, block_size=2, device=torch.device("cpu"), num_host_blocks=4)
    pool.memory[:] = torch.arange(6)[:, None, None, None]
    pool.host_memory[:] = 100 + torch.arange(4)[:, None, None, None, None, None]
    return pool


def contents(memory: torch.Tensor, *, dim: int) -> list[float]:
    """What each block is full of, in all layers, keys and values."""
    blocks = memory.movedim(dim, 0).flatten(1)
    assert (blocks == blocks[:, :1]).all()
    return blocks[:, 0].tolist()


def test_blocks_go_out_and_come_back_whole(pool):
    pool.copy_out(np.array([(4, 0), (1, 3)], np.int32))
    assert contents(pool.host_memory, dim=0) == [4, 101, 102, 1]
    pool.copy_into(np.array([(3, 5), (2, 1)], np.int32))
    assert contents(pool.memory, dim=2) == [0, 102, 2, 3, 4, 1]


def test_a_block_is_copied_to_as_many_as_ask_for_it(pool):
    pool.copy_within(np.array([(2, 0), (2, 5), (3, 4)], np.int32))
    assert contents(pool.memory, dim=2) == [2, 1, 2, 3, 3, 2]


def test_blocks_that_were_read_can_be_written_elsewhere(pool):
    other = KvPool(SPEC, num_blocks=4, block_size=2, device=torch.device("cpu"))
    content = pool.read(np.array([(1, 0), (2, 1)], np.int32))
    assert contents(content, dim=0) == [1, 102]
    other.write(np.array([(3, 0), (0, 0)], np.int32), content)
    pool.memory.zero_()
    pool.host_memory.zero_()
    assert torch.equal(other.read(np.array([(3, 0), (0, 0)], np.int32)), content), "it is a copy"
