"""How fast PyTorch multiplies on this machine, at a model's shapes."""

import time
from functools import cache

import torch
from torch.nn import functional

from benchmarks.limit import Limit, Shape, burst_limit, head_shape, layer_shapes
from benchmarks.serve.workload import WorkloadSpec
from headway.core.model import ModelSpec
from headway.models.model import DTYPES

NUM_TIMINGS = 10


def measured_limit(spec: WorkloadSpec, model: ModelSpec) -> Limit:
    """The same with products timed here and now, by torch's own threads; takes a few seconds."""
    return burst_limit(
        spec,
        model,
        body_s=lambda rows: product_s(layer_shapes(model) * model.num_layers, rows=rows, dtype=model.dtype),
        head_s=lambda rows: product_s((head_shape(model),), rows=rows, dtype=model.dtype),
    )


@cache
@torch.inference_mode()
def product_s(shapes: tuple[Shape, ...], *, rows: int, dtype: str) -> float:
    """Seconds to multiply `rows` rows with each of the weights in turn, as a step does; the quickest of a few runs."""
    weights = [torch.randn(shape.out_features, shape.in_features, dtype=DTYPES[dtype]) for shape in shapes]
    inputs = {shape.in_features: torch.randn(rows, shape.in_features, dtype=DTYPES[dtype]) for shape in shapes}
    timings_s = []
    for _ in range(1 + NUM_TIMINGS):
        start_s = time.perf_counter()
        for weight in weights:
            functional.linear(inputs[weight.shape[1]], weight)
        timings_s.append(time.perf_counter() - start_s)
    return min(timings_s[1:])
