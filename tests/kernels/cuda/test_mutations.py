"""The suite is sharp enough: each of these faults, put into the source, fails a vector that the source passes."""

from pathlib import Path

import pytest

from headway.kernels.cuda.sources import SOURCES
from tests.kernels.cuda.cases import BF16, F32, FP8, DecodeCase, DecodeStep
from tests.kernels.cuda.merge_step import MergeStep
from tests.kernels.cuda.mutations import Mutation, Vector, fails

UNIT = """
#include "merge.cu"
#include "decode_launch.h"

HEADWAY_API int headway_decode_attention(const headway::DecodeProblem* problem) {{
  using namespace headway;
  return launch_decode(*problem, {kernel}());
}}
"""


def vector_of(kernel: str, case: DecodeCase) -> Vector:
    return Vector(UNIT.format(kernel=kernel), DecodeStep(case))


VECTOR = vector_of("vector_kernel<half>", DecodeCase(lengths=(200, 37), query_dtype=F32, num_slots=3))
MATRIX = vector_of("matrix_kernel<half, 64, 1>", DecodeCase(lengths=(700, 37), num_slots=1))
MATRIX_16 = vector_of(
    "matrix_kernel<half, 64, 2>", DecodeCase(lengths=(100, 37), num_heads=12, num_kv_heads=1, num_slots=3)
)
MATRIX_FP8 = vector_of(
    "matrix_kernel<fp8, 64, 1>",
    DecodeCase(lengths=(100, 37), query_dtype=BF16, cache_dtype=FP8, query_factor=1e10, num_slots=1),
)
MERGE = Vector('#include "merge.cu"', MergeStep.of(70, head_dim=40))

MUTATIONS = [
    Mutation("missing barrier before the results", VECTOR, "decode_vector.h", "__syncthreads();  // the", "// the"),
    Mutation("missing barrier after the results", VECTOR, "decode_vector.h", "__syncthreads();", "", 1),
    Mutation("off by one in the last block", VECTOR, "decode_vector.h", "key < item.end_key ? opt", "true ? opt"),
    Mutation("wrong block", VECTOR, "decode_vector.h", "find_blocks(stage + 1)", "find_blocks(stage)"),
    Mutation("wrong shuffle in the product", VECTOR, "decode_vector.h", "lanes = 16", "lanes = 8"),
    Mutation("missing rescale of the values", VECTOR, "decode_vector.h", "values[head][d] *= factor;", ";"),
    Mutation("missing wait", VECTOR, "decode_vector.h", "wait_copies<kStages - 2>", "wait_copies<kStages - 1>"),
    Mutation("missing rescale between warps", VECTOR, "warp_results.h", "value += weights[warp] *", "value +="),
    Mutation("missing rescale between splits", VECTOR, "merge.cu", "? weight * values", "? values"),
    Mutation("missing barrier between items", MATRIX, "decode_problem.h", "__syncthreads();  // all", "// all"),
    Mutation("an item left out", MATRIX, "decode_problem.h", "num_slots - 1 - slot", "slot + 1"),
    Mutation("missing barrier before the results", MATRIX, "decode_matrix.h", "__syncthreads();  // the", "// the"),
    Mutation("missing barrier after the results", MATRIX, "decode_matrix.h", "__syncthreads();", "", 1),
    Mutation("off by one in the last block", MATRIX, "decode_matrix.h", "8 >= item.end_key", "8 > item.end_key"),
    Mutation("wrong shuffle of the maximum", MATRIX, "decode_matrix.h", "new_max[i], lanes)", "new_max[i], lanes / 2)"),
    Mutation("missing rescale of the values", MATRIX, "decode_matrix.h", "step[i + 2] *= factor;", ""),
    Mutation("missing rescale of the sum", MATRIX, "decode_matrix.h", "sum[tile][i] * factor +", "sum[tile][i] +"),
    Mutation("wrong transposition", MATRIX, "decode_matrix.h", "packed[i] = transposed", "packed[i] = "),
    Mutation("missing wait", MATRIX, "decode_matrix.h", "wait_copies<kStages - 2>", "wait_copies<kStages - 1>"),
    Mutation("copies one stage too far", MATRIX, "decode_matrix.h", "stage < kStages - 1; ++", "stage < kStages; ++"),
    Mutation(
        "a warp without keys goes on", MATRIX_16, "decode_matrix.h", "; first_key <", "; first_key - warp * kKeys <"
    ),
    Mutation("wrong block", MATRIX, "decode_stages.h", "k_place, first + row", "k_place, row"),
    Mutation("keys of another warp", MATRIX, "decode_stages.h", "next_key += kWarps * kKeys;", "next_key += kKeys;"),
    Mutation("rows in the same banks", MATRIX, "decode_stages.h", "kPitch = kRowBytes + 16", "kPitch = kRowBytes"),
    Mutation("heads of another tile", MATRIX_16, "decode_matrix.h", "head = tile * 8 + lane / 4", "head = lane / 4"),
    Mutation("queries beyond fp16", MATRIX_FP8, "decode_matrix.h", "(268 - exponent)", "(270 - exponent)"),
    Mutation(
        "queries that are not scaled back", MATRIX_FP8, "decode_matrix.h", "undone, (lane % 4 * 2 + i) * 4", "1.0f, 0"
    ),
    Mutation("the scale of another head", MATRIX_FP8, "decode_matrix.h", "(lane % 4 * 2 + i) * 4)", "lane)"),
    Mutation(
        "numbers in another order", MATRIX_FP8, "decode_matrix.h", "kIsFp8 ? lane % 4 * 4", "false ? lane % 4 * 4"
    ),
    Mutation(
        "results in another order", MATRIX_FP8, "decode_matrix.h", "kIsFp8 ? lane / 4 * 2", "false ? lane / 4 * 2"
    ),
    Mutation(
        "bytes of other keys", MATRIX_FP8, "decode_matrix.h", "middle_swapped(numbers[2 * half_row])", "numbers[0]"
    ),
    Mutation(
        "what lies in an empty partial",
        MERGE,
        "merge.cu",
        "weight > 0 ? weight * values[k] : 0.0f",
        "weight * values[k]",
    ),
    Mutation("off by one before the last", MERGE, "merge.cu", "i + k + 1 < num", "i + k + 2 < num"),
    Mutation("missing barrier before the weights", MERGE, "merge.cu", "__syncthreads();  // all", "// all"),
    Mutation("missing barrier after the weights", MERGE, "merge.cu", "__syncthreads();", "", 1),
    Mutation("an early launch that does not wait", MERGE, "merge.cu", "wait_for_last();", ""),
    Mutation("an end before the wait", VECTOR, "merge.cu", "wait_for_last();", "if (partials.count) wait_for_last();"),
    Mutation("the maximum of the first only", MERGE, "merge.cu", "i < count; i += 32", "i < 32; i += 32"),
]


@pytest.mark.parametrize(
    "vector", [VECTOR, MATRIX, MATRIX_16, MATRIX_FP8, MERGE], ids=["vector", "matrix", "16", "fp8", "merge"]
)
def test_the_source_passes(vector: Vector, tmp_path: Path, shim: Path) -> None:
    assert not fails(vector, SOURCES, tmp_path, shim)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_fault_is_found(mutation: Mutation, tmp_path: Path, shim: Path) -> None:
    assert mutation.is_found(tmp_path, shim)
