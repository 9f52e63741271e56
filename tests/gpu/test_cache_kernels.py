"""What is written into a cache on a GPU, and copies of its blocks: the same vectors as on the CPU, and large pools."""

import pytest
import torch

from headway.kernels import reference
from headway.kernels.cuda import build, copy_blocks, rotate, rotate_and_cache, swap_blocks
from tests.kernels.cuda.cache_steps import ROTARY_CASES, ROTATION_OPTIONS, RotaryCase, RotaryStep
from tests.kernels.cuda.cases import BF16, FP8, DecodeCase, DecodeStep

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

DEVICE = torch.device("cuda")
MANY = 1 << 31  # numbers of a cache that 32 bits no longer count


def skip_without(num_bytes: int) -> None:
    free_bytes, _ = torch.cuda.mem_get_info()
    if free_bytes < num_bytes:
        pytest.skip(f"not run: takes {num_bytes / 1e9:.1f} GB, and {free_bytes / 1e9:.1f} GB of the GPU's are free")


@pytest.mark.parametrize("case", ROTARY_CASES, ids=str)
def test_writes_equal_the_definition(case: RotaryCase) -> None:
    step = RotaryStep(case, DEVICE)
    step.check(*step.run(rotate_and_cache))


@pytest.mark.parametrize("case", [case for case in ROTARY_CASES if case.rotary_dim], ids=str)
def test_without_a_cache_queries_and_keys_are_rotated_alike(case: RotaryCase) -> None:
    step = RotaryStep(case, DEVICE)
    q, k, _ = step.heads_of(step.run(rotate_and_cache)[0])
    alone_q, alone_k, _ = step.heads_of(step.copy())
    rotate(alone_q, alone_k, **{name: step.options[name] for name in ROTATION_OPTIONS})
    assert torch.equal(alone_q, q)
    assert torch.equal(alone_k, k)


def test_a_captured_write_reads_the_slots_that_it_finds() -> None:
    case = RotaryCase(BF16, FP8, head_dim=128, rotary_dim=128, has_norm=True)
    step, other = RotaryStep(case, DEVICE), RotaryStep(case, DEVICE, slots=(30, 1, 2, -1, 9, 17, 16))
    step.run(rotate_and_cache)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step.run(rotate_and_cache)
    for now in (step, other):
        step.options["slot_mapping"].copy_(now.options["slot_mapping"])
        graph.replay()
        now.check(*results)


@pytest.mark.parametrize("num_heads", [4, 16])
def test_a_cache_of_more_numbers_than_32_bits_count_is_read_to_its_end(num_heads: int) -> None:
    skip_without(2 * MANY + (1 << 29))
    step = DecodeStep(DecodeCase(num_heads=num_heads, num_kv_heads=2, cache_dtype=FP8), DEVICE)
    first = MANY // step.k_cache[0].numel()
    step.k_cache, step.v_cache = (behind(first, cache) for cache in (step.k_cache, step.v_cache))
    step.block_tables += first
    step.check(*step.run())


def test_a_cache_of_more_numbers_than_32_bits_count_is_written_to_its_end() -> None:
    skip_without(2 * MANY + (1 << 29))
    case = RotaryCase(BF16, FP8, head_dim=128, rotary_dim=128)
    step = RotaryStep(case, DEVICE)
    expected = step.run(rotate_and_cache)
    first = MANY // step.caches[0][0].numel()
    caches = [behind(first, cache) for cache in step.caches]
    slots = step.options["slot_mapping"]
    options = {**step.options, "slot_mapping": slots.where(slots < 0, slots + first * case.block_size)}
    rotate_and_cache(*step.heads_of(step.copy()), k_cache=caches[0], v_cache=caches[1], **options)
    for cache, small in zip(caches, expected[1:], strict=True):
        assert torch.equal(cache[first:].view(torch.uint8), small.view(torch.uint8))


def behind(num_blocks: int, cache: torch.Tensor) -> torch.Tensor:
    """The cache behind as many blocks of any content."""
    large = torch.empty(num_blocks + len(cache), *cache.shape[1:], dtype=cache.dtype, device=DEVICE)
    large[num_blocks:] = cache
    return large


def test_blocks_are_copied_in_all_layers() -> None:
    memory = torch.randn(4, 2, 60, 8, 16, 128, device=DEVICE)
    expected, pairs = memory.clone(), torch.randperm(60, device=DEVICE).view(30, 2)
    copy_blocks(memory, pairs=pairs)
    reference.copy_blocks(expected, pairs=pairs)
    assert torch.equal(memory, expected)


def test_blocks_of_planes_beyond_two_gibibytes_travel() -> None:
    num_blocks, block_bytes = 2100, 1 << 20
    skip_without(2 * num_blocks * block_bytes + (1 << 29))
    memory = torch.empty(1, 2, num_blocks, block_bytes, dtype=torch.uint8, device=DEVICE)
    last = memory[:, :, -3:]
    last.random_()
    before, host_memory = last.clone(), torch.zeros(3, 1, 2, block_bytes, dtype=torch.uint8).pin_memory()
    numbers, host_numbers = torch.arange(num_blocks - 3, num_blocks), torch.arange(3)
    swap_blocks(memory, host_memory, pairs=torch.stack((numbers, host_numbers), dim=1), is_out=True)
    last.zero_()
    swap_blocks(memory, host_memory, pairs=torch.stack((host_numbers, numbers), dim=1), is_out=False)
    assert torch.equal(last, before)
    assert torch.equal(host_memory.movedim(0, 2).to(DEVICE), before)
