"""Faults in what writes, copies and widens a cache, each of which must fail a vector that the source passes."""

from pathlib import Path

import pytest

from headway.kernels.cuda.sources import SOURCES
from tests.kernels.cuda.cache_steps import CopyStep, RotaryCase, RotaryStep, SwapStep
from tests.kernels.cuda.cases import BF16, F16, FP8
from tests.kernels.cuda.mutations import Mutation, Vector, fails
from tests.kernels.cuda.prefill_cases import PrefillCase, PrefillStep

SLOTS = (0, 13, 26, 12, -1, 38, 20)
ROTARY_CASE = RotaryCase(BF16, FP8, rotary_dim=32, has_norm=True, block_size=13)
ROTARY = Vector('#include "rotate_and_cache.cu"', RotaryStep(ROTARY_CASE, slots=SLOTS))
NUMBERS = Vector(
    '#include "rotate_and_cache.cu"', RotaryStep(RotaryCase(F16, F16, head_dim=24, rotary_dim=6, has_norm=True))
)
COPY = Vector('#include "copy_blocks.cu"', CopyStep.of())
SWAP = Vector('#include "swap_blocks.cu"', SwapStep.of())
WIDENED = Vector(
    """
#include "prefill_matrix.h"

HEADWAY_API int headway_prefill_attention(const headway::PrefillProblem* problem) {
  return headway::launch_prefill_matrix<headway::half, 64>(*problem);
}
""",
    PrefillStep(PrefillCase(query_lens=(20, 3), seq_lens=(50, 7), cache_dtype=FP8)),
)
VECTORS = {"rotary": ROTARY, "numbers": NUMBERS, "copy": COPY, "swap": SWAP, "widened": WIDENED}

ROTARY_FILE = "rotate_and_cache.cu"
MUTATIONS = [
    Mutation("wrong sign", ROTARY, ROTARY_FILE, "cosines[k] - second", "cosines[k] + second"),
    Mutation("sines of another pair", ROTARY, ROTARY_FILE, "cos_sin + (pair + ", "cos_sin + (pair + 1 + "),
    Mutation(
        "partner from the whole head", ROTARY, ROTARY_FILE, "side * launch.num_turning", "side * launch.num_pairs"
    ),
    Mutation("a shuffle too few", ROTARY, ROTARY_FILE, "lanes < 1 << launch", "2 * lanes < 1 << launch"),
    Mutation("norms of lanes without a row", ROTARY, ROTARY_FILE, "if (launch.has_norm)", "if (is_active)"),
    Mutation("off by one in the last token", ROTARY, ROTARY_FILE, "if (slot < 0)", "if (slot <= 0)"),
    Mutation("off by one in the block", ROTARY, ROTARY_FILE, "/ size + 1", "/ size"),
    Mutation("missing scale", ROTARY, ROTARY_FILE, "heads.factor);", "1.0f);"),
    Mutation("off by one in the head", NUMBERS, ROTARY_FILE, "< launch.head_dim)", "< launch.head_dim - 1)"),
    Mutation("a row to itself", COPY, "copy_blocks.cu", "pair[1]", "pair[0]"),
    Mutation("off by one in the last piece", COPY, "pieces.h", "num_bytes / 16)", "num_bytes / 16 - 1)"),
    Mutation("pieces of the thread beside", COPY, "pieces.h", "(first + i * kThreads), p", "(first + i), p"),
    Mutation("the first pairs again", SWAP, "swap_blocks.cu", "(first + i) + side", "i + side"),
    Mutation("another plane", SWAP, "swap_blocks.cu", "blockIdx.x * problem.block_bytes;", "0;"),
    Mutation("the other way", SWAP, "swap_blocks.cu", "? from : to", "? to : from"),
    Mutation("the first numbers of fp8 twice", WIDENED, "prefill_matrix.h", "widened<T>(raw.y", "widened<T>(raw.x"),
    Mutation(
        "fp8 of the piece beside", WIDENED, "prefill_matrix.h", "const fp8*>(cache) + offset", "const fp8*>(cache)"
    ),
]


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_the_source_passes(vector: Vector, tmp_path: Path, shim: Path) -> None:
    assert not fails(vector, SOURCES, tmp_path, shim)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_fault_is_found(mutation: Mutation, tmp_path: Path, shim: Path) -> None:
    assert mutation.is_found(tmp_path, shim)
