import psutil
import torch

from headway.core.model import Family, ModelSpec
from headway.runner.kv_pool import KvPool

SPEC = ModelSpec(
    family=Family.LLAMA,
    architecture="LlamaForCausalLM",
    vocab_size=16,
    hidden_size=512,
    num_layers=8,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
    intermediate_size=64,
    max_position=128,
    dtype="float32",
    activation="silu",
    norm_eps=1e-5,
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
