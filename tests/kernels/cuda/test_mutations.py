"""The suite is sharp enough: each of these faults, put into the source, fails a vector that the source passes."""

from pathlib import Path

import pytest

from headway.kernels.cuda.sources import SOURCES
from tests.kernels.cuda.cases import DecodeCase, DecodeStep
from tests.kernels.cuda.mutations import Mutation, Vector, fails

UNIT = """
#include "merge.cu"
#include "decode_launch.h"

HEADWAY_API int headway_decode_attention(const headway::DecodeProblem* problem) {{
  return headway::{launcher}(*problem);
}}
"""
VECTOR = Vector(
    UNIT.format(launcher="launch_vector<headway::half, 64>"), DecodeStep(DecodeCase(lengths=(200, 37), num_ctas=6))
)
MATRIX = Vector(
    UNIT.format(launcher="launch_matrix<headway::half, headway::half, 64>"),
    DecodeStep(DecodeCase(lengths=(700, 37), num_heads=8, num_kv_heads=1, num_ctas=1)),
)

MUTATIONS = [
    Mutation("missing barrier before the results", VECTOR, "decode_vector.h", "__syncthreads();  // the", "// the"),
    Mutation("missing barrier after the results", VECTOR, "decode_vector.h", "__syncthreads();", "", 1),
    Mutation("off by one in the last block", VECTOR, "decode_vector.h", "key < item.end_key ? opt", "true ? opt"),
    Mutation("wrong block", VECTOR, "decode_vector.h", "find_blocks(stage + 1)", "find_blocks(stage)"),
    Mutation("wrong shuffle in the product", VECTOR, "decode_vector.h", "lanes = kLanes / 2", "lanes = kLanes / 4"),
    Mutation("missing rescale of the values", VECTOR, "decode_vector.h", "values[head][d] *= factor;", ";"),
    Mutation("missing wait", VECTOR, "decode_vector.h", "wait_copies<kStages - 2>", "wait_copies<kStages - 1>"),
    Mutation("missing rescale between warps", VECTOR, "warp_results.h", "value += weight *", "value +="),
    Mutation("missing rescale between splits", VECTOR, "merge.cu", "value += share *", "value +="),
    Mutation("missing barrier after the queries", MATRIX, "decode_matrix.h", "__syncthreads();", ""),
    Mutation("missing barrier before the results", MATRIX, "decode_matrix.h", "__syncthreads();  // the", "// the"),
    Mutation(
        "off by one in the last block", MATRIX, "decode_matrix.h", "key < item.end_key &&", "key <= item.end_key &&"
    ),
    Mutation("wrong shuffle of the maximum", MATRIX, "decode_matrix.h", "new_max, 2)", "new_max, 4)"),
    Mutation("missing rescale of the values", MATRIX, "decode_matrix.h", "tile[2 * r] *= factor;", ""),
    Mutation("copies one stage too far", MATRIX, "decode_matrix.h", "(stage + kStages - 1);", "(stage + kStages);"),
]


@pytest.mark.parametrize("vector", [VECTOR, MATRIX], ids=["vector", "matrix"])
def test_the_source_passes(vector: Vector, tmp_path: Path) -> None:
    assert not fails(vector, SOURCES, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_fault_is_found(mutation: Mutation, tmp_path: Path) -> None:
    assert mutation.is_found(tmp_path)
