"""Faults in prefill attention, norms and sampling, each of which must fail a vector that the source passes."""

from pathlib import Path

import pytest

from headway.core.request import SamplingParams
from headway.kernels.cuda.sources import SOURCES
from tests.kernels.cuda.cases import F32
from tests.kernels.cuda.mutations import Mutation, Vector, fails
from tests.kernels.cuda.prefill_cases import PrefillCase, PrefillStep
from tests.kernels.cuda.row_steps import NormStep, SampleStep

PREFILL = """
#include "prefill_matrix.h"
#include "prefill_vector.h"

HEADWAY_API int headway_prefill_attention(const headway::PrefillProblem* problem) {{
  return headway::{launcher}(*problem);
}}
"""
CASE = PrefillCase(query_lens=(40, 3), seq_lens=(140, 7), num_heads=3, num_kv_heads=1, sliding_window=90, head_dim=48)
MATRIX = Vector(PREFILL.format(launcher="launch_prefill_matrix<headway::half, 64>"), PrefillStep(CASE))
VECTOR = Vector(PREFILL.format(launcher="launch_prefill_vector"), PrefillStep(CASE))


NORM = Vector('#include "norm.cu"', NormStep.of(600, F32))
SAMPLE = Vector(
    '#include "sample.cu"',
    SampleStep.of(1500, [SamplingParams(top_k=row % 2 * 700, top_p=0.9, seed=row) for row in range(30)]),
)

MATRIX_FILE, VECTOR_FILE, PROBLEM = "prefill_matrix.h", "prefill_vector.h", "prefill_problem.h"
MUTATIONS = [
    Mutation("missing barrier between stages", MATRIX, MATRIX_FILE, "__syncthreads();", ""),
    Mutation("missing wait", MATRIX, MATRIX_FILE, "wait_copies<kStages - 2>", "wait_copies<kStages - 1>"),
    Mutation("off by one at the diagonal", MATRIX, MATRIX_FILE, "key < row.end_key", "key <= row.end_key"),
    Mutation("off by one at the window", MATRIX, MATRIX_FILE, "row.first_key <= key", "row.first_key < key"),
    Mutation("wrong shuffle of the maximum", MATRIX, MATRIX_FILE, "new_max, 2)", "new_max, 4)"),
    Mutation("missing rescale of the values", MATRIX, MATRIX_FILE, "eight[2 * r + 1] *= factor;", ""),
    Mutation("dimensions that heads have not", MATRIX, MATRIX_FILE, "key < num_valid && dim", "key < num_valid || dim"),
    Mutation("a tile too few", MATRIX, PROBLEM, " / rows_per_tile + at", " / rows_per_tile"),
    Mutation("missing barrier before a stage", VECTOR, VECTOR_FILE, "__syncthreads();", ""),
    Mutation("missing barrier after a stage", VECTOR, VECTOR_FILE, "__syncthreads();  // all", "// all"),
    Mutation("missing rescale of the values", VECTOR, VECTOR_FILE, "value *= factor;", ";"),
    Mutation("missing barrier of the sum", NORM, "cta_sum.h", "__syncthreads();", ""),
    Mutation("another number", SAMPLE, "sample.cu", "(position) + 1", "(position)"),
    Mutation("missing carry of a sum", SAMPLE, "sample.cu", " + (before + lower < before)", ""),
    Mutation("off by one in what stays", SAMPLE, "sample.cu", "(it) < lowest", "(it) <= lowest"),
]


@pytest.mark.parametrize("vector", [MATRIX, VECTOR, NORM, SAMPLE], ids=["matrix", "vector", "norm", "sample"])
def test_the_source_passes(vector: Vector, tmp_path: Path, shim: Path) -> None:
    assert not fails(vector, SOURCES, tmp_path, shim)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_fault_is_found(mutation: Mutation, tmp_path: Path, shim: Path) -> None:
    assert mutation.is_found(tmp_path, shim)
