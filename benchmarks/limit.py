"""The physical limit of a burst: the time that its matrix products alone would take in PyTorch.

Prompts are taken to be computed in chunks of 1,024 tokens, a shared prefix once, and outputs in steps of all sequences
together; attention, norms, sampling and everything around the model are taken to cost nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.serve.workload import WorkloadSpec, make_workload
from headway.core.model import ModelSpec

CHUNK_ROWS = 1024

SecondsOfRows = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The time of a burst's matrix products, and the throughput that allows.

    Attributes:
        flops: multiplications and additions of all products.
        products_s: their time at PyTorch's rate at their shapes.
        output_tokens_per_s: of the burst, if nothing else took time.
    """

    flops: float
    products_s: float
    output_tokens_per_s: float

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.products_s


@dataclass(frozen=True, slots=True)
class Shape:
    """A weight: [out_features, in_features]."""

    in_features: int
    out_features: int

    @property
    def flops_per_row(self) -> int:
        return 2 * self.in_features * self.out_features


def burst_limit(spec: WorkloadSpec, model: ModelSpec, *, body_s: SecondsOfRows, head_s: SecondsOfRows) -> Limit:
    """The limit of a workload whose requests all arrive at once.

    Args:
        body_s, head_s: seconds of all layers' products, and of the output head's, over so many rows.
    """
    requests = make_workload(spec)
    num_sequences = sum(request.n for request in requests)
    num_outputs = sum(request.n * request.num_output_tokens for request in requests)
    num_shared = spec.shared_prefix_tokens * (len(requests) - 1)
    num_prefilled = sum(len(request.prompt_token_ids) for request in requests) - num_shared
    num_decodes = num_outputs - num_sequences  # the first token of each comes with its prompt
    num_steps = num_decodes / num_sequences
    products_s = num_prefilled / CHUNK_ROWS * body_s(CHUNK_ROWS) + head_s(len(requests))
    products_s += num_steps * (body_s(num_sequences) + head_s(num_sequences))
    head = head_shape(model)
    layer_flops = sum(shape.flops_per_row for shape in layer_shapes(model)) * model.num_layers
    flops = (num_prefilled + num_decodes) * layer_flops + (len(requests) + num_decodes) * head.flops_per_row
    return Limit(flops=flops, products_s=products_s, output_tokens_per_s=num_outputs / products_s)


def layer_shapes(model: ModelSpec) -> tuple[Shape, ...]:
    """The products of one layer of a Llama: fused query, key and value; output; fused gate and up; down."""
    query = model.num_heads * model.head_dim
    key = model.num_kv_heads * model.head_dim
    return (
        Shape(model.hidden_size, query + 2 * key),
        Shape(query, model.hidden_size),
        Shape(model.hidden_size, 2 * model.intermediate_size),
        Shape(model.intermediate_size, model.hidden_size),
    )


def head_shape(model: ModelSpec) -> Shape:
    return Shape(model.hidden_size, model.vocab_size)
