"""A plan as flags of Megatron-LM's pretrain_gpt.py, in a file for a shell to source. Pure."""

from collections.abc import Iterator
from itertools import groupby

from headway.core.exports.decoder import Decoder
from headway.core.exports.heading import heading
from headway.core.exports.parallelism import Parallelism, Part, read_parallelism
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision

_TARGET = "Megatron-LM"
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def megatron_flags(plan: TrainingPlan, graph: Graph) -> str:
    """The array MEGATRON_ARGS; comments say in which it is not the plan.

    Raises:
        FailedPreconditionError: Megatron-LM cannot run anything near it.
    """
    found = read_parallelism(plan, graph, _TARGET)
    flags = [
        *_model(found.decoder),
        *_batches(plan, found),
        *_parallelism(found),
        *_sharding(found),
        *_precision(plan),
    ]
    if found.recomputes:
        flags += ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
    body = [f"  {flag}" for flag in flags]
    return "\n".join([*heading(plan, found.notes), "", "MEGATRON_ARGS=(", *body, ")"]) + "\n"


def _model(decoder: Decoder) -> Iterator[str]:
    yield f"--num-layers {decoder.num_layers}"
    yield f"--hidden-size {decoder.hidden}"
    yield f"--ffn-hidden-size {decoder.inner}"
    yield f"--num-attention-heads {decoder.num_heads}"
    yield f"--kv-channels {decoder.head_dim}"
    if decoder.num_kv_heads < decoder.num_heads:
        yield "--group-query-attention"
        yield f"--num-query-groups {decoder.num_kv_heads}"
    yield f"--seq-length {decoder.seq}"
    yield f"--max-position-embeddings {decoder.num_positions or decoder.seq}"
    yield f"--position-embedding-type {'learned_absolute' if decoder.num_positions else 'rope'}"
    yield f"--normalization {'LayerNorm' if decoder.has_layer_norm else 'RMSNorm'}"
    if decoder.is_gated:
        yield "--swiglu"
    if not decoder.has_bias:
        yield "--disable-bias-linear"
    if not decoder.is_tied:
        yield "--untie-embeddings-and-output-weights"


def _batches(plan: TrainingPlan, found: Parallelism) -> Iterator[str]:
    yield f"--micro-batch-size {found.micro_batch}"
    yield f"--global-batch-size {plan.batch}"


def _parallelism(found: Parallelism) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {found.tensor}"
    yield f"--pipeline-model-parallel-size {len(found.parts)}"
    yield f"--context-parallel-size {found.context}"
    if found.tensor > 1:
        yield "--sequence-parallel"
    if len(found.parts) > 1:
        yield f"--pipeline-model-parallel-layout '{'|'.join(_layout(part) for part in found.parts)}'"


def _layout(part: Part) -> str:
    """A stage in Megatron-LM's letters: E the tables, t a block, L the logits and the loss."""
    letters = "E" * part.is_first + "t" * len(part.blocks) + "L" * part.is_last
    runs = [(letter, len(list(same))) for letter, same in groupby(letters)]
    return "".join(letter if number == 1 else f"{letter}*{number}" for letter, number in runs)


def _sharding(found: Parallelism) -> Iterator[str]:
    if found.zero_stage == 0 or found.data == 1:
        return
    yield "--use-distributed-optimizer"
    if found.zero_stage > 1:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {_SHARDING[found.zero_stage]}"
        yield "--ckpt-format fsdp_dtensor"
        yield "--no-gradient-accumulation-fusion"


def _precision(plan: TrainingPlan) -> Iterator[str]:
    if plan.precision == Precision.BFLOAT16:
        yield "--bf16"
    elif plan.precision == Precision.FLOAT16:
        yield "--fp16"
