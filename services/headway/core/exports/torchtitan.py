"""A plan as a job file of torchtitan (TOML, as torchtitan 0.2 reads it). Pure."""

import json
from collections.abc import Iterator

from headway.core.errors import FailedPreconditionError
from headway.core.exports.decoder import Decoder
from headway.core.exports.heading import heading
from headway.core.exports.parallelism import Parallelism, Part, read_parallelism
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision

_TARGET = "torchtitan"
_LLAMA_3 = {(4096, 32, 32, 8): "8B", (8192, 80, 64, 8): "70B", (16384, 126, 128, 8): "405B"}

Settings = dict[str, str | int | list[list[str]]]


def torchtitan_job(plan: TrainingPlan, graph: Graph) -> str:
    """The job file; comments say in which it is not the plan.

    Raises:
        FailedPreconditionError: torchtitan cannot run anything near it.
    """
    found = read_parallelism(plan, graph, _TARGET)
    _check_seq(found)
    notes = list(found.notes)
    sections: dict[str, Settings] = {
        "job": {"description": f"{plan.model}, Headway's plan {plan.plan_id}"},
        "model": _model(found.decoder, notes),
        "training": _training(plan, found, notes),
        "parallelism": _parallelism(plan, found, notes),
        "activation_checkpoint": {"mode": "full" if found.recomputes else "none"},
    }
    return "\n".join([*heading(plan, notes), *_lines(sections)]) + "\n"


def _check_seq(found: Parallelism) -> None:
    parts = found.tensor * 2 * found.context
    if found.tensor * found.context > 1 and found.decoder.seq % parts:
        raise FailedPreconditionError(
            f"{_TARGET} cuts sequences into {parts} parts, which {found.decoder.seq} tokens do not divide into.",
            hint=f"Capture the model with a sequence length that {parts} divides.",
        )


def _model(decoder: Decoder, notes: list[str]) -> Settings:
    sizes = decoder.hidden, decoder.num_layers, decoder.num_heads, decoder.num_kv_heads
    if sizes in _LLAMA_3:
        return {"name": "llama3", "flavor": _LLAMA_3[sizes]}
    notes.append(
        f"Set the flavor to one of {decoder.num_layers} layers, hidden size {decoder.hidden}, {decoder.num_heads} "
        f"heads and {decoder.num_kv_heads} of keys and values; torchtitan has none of these sizes by itself."
    )
    return {"name": "llama3"}


def _training(plan: TrainingPlan, found: Parallelism, notes: list[str]) -> Settings:
    is_half = plan.precision != Precision.FLOAT32
    if plan.precision == Precision.FLOAT16:
        notes.append("Computes in bfloat16, not float16, which torchtitan does not train in.")
    if is_half and _data_shard(found) == 1 and found.num_devices > found.data:
        notes.append("Computes in float32: torchtitan computes in less only where it shards parameters over examples.")
    has_stages = len(plan.stages) > 1
    return {
        "local_batch_size": plan.batch // found.data if has_stages else found.micro_batch,
        "global_batch_size": plan.batch,
        "seq_len": found.decoder.seq,
        "dtype": "float32",
        "mixed_precision_param": "bfloat16" if is_half else "float32",
        "mixed_precision_reduce": "float32",
    }


def _parallelism(plan: TrainingPlan, found: Parallelism, notes: list[str]) -> Settings:
    shard = _data_shard(found)
    if shard > 1 and found.zero_stage < 2:
        notes.append(f"Parameters are in ZeRO stage 2, not {found.zero_stage}: torchtitan shards gradients as well.")
    settings: Settings = {
        "data_parallel_replicate_degree": found.data // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if found.zero_stage == 3 else "never",
        "tensor_parallel_degree": found.tensor,
        "context_parallel_degree": found.context,
        "pipeline_parallel_degree": len(found.parts),
    }
    if len(found.parts) > 1:
        settings |= {
            "pipeline_parallel_schedule": _schedule(plan, notes),
            "pipeline_parallel_microbatch_size": found.micro_batch,
            "module_fqns_per_model_part": [_modules(part) for part in found.parts],
        }
    return settings


def _data_shard(found: Parallelism) -> int:
    """Devices that parameters are sharded over; torchtitan replicates them only where it splits nothing else."""
    is_only = found.num_devices == found.data
    return 1 if found.zero_stage == 0 and is_only else found.data


def _schedule(plan: TrainingPlan, notes: list[str]) -> str:
    if plan.num_micro_batches >= len(plan.stages):
        return "1F1B"
    notes.append("The schedule is GPipe: 1F1B wants as many micro-batches as stages.")
    return "GPipe"


def _modules(part: Part) -> list[str]:
    """Names of modules as torchtitan's decoders have them."""
    first = ["tok_embeddings"] if part.is_first else []
    last = ["norm", "output"] if part.is_last else []
    return [*first, *(f"layers.{number}" for number in part.blocks), *last]


def _lines(sections: dict[str, Settings]) -> Iterator[str]:
    for name, settings in sections.items():
        yield ""
        yield f"[{name}]"
        for key, value in settings.items():
            if isinstance(value, list):
                rows = "".join(f"\n  {json.dumps(row)}," for row in value)
                yield f"{key} = [{rows}\n]"
            else:
                yield f"{key} = {json.dumps(value)}"
