"""What one rank of a group holds of a model: layers, heads, rows, experts; and what that weighs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from headway.core.errors import InvalidArgumentError
from headway.core.model import GATED, QUANTIZATION_BYTES, ModelSpec
from headway.core.parallel_config import CP_FFN, ParallelConfig, Span, split


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShard:
    """One rank's part.

    Attributes:
        query_heads: of `num_heads`, projected here.
        kv_heads: of `num_kv_heads`; where there are fewer than ranks, several ranks project the same one.
        attended_query_heads, cached_kv_heads: the same, where ranks that share the cache split the weights: each
            attends with the heads of all of them to its shard of their keys and values.
        mlp: of the `intermediate_size` of dense layers.
        shared_mlp: of the shared expert's width.
        experts: held whole.
        vocab: rows of the token embedding (first stage).
        head: rows of the output head, which all stages share.
        is_first, is_last: stage of the pipeline.
    """

    layers: Span
    query_heads: Span
    kv_heads: Span
    attended_query_heads: Span
    cached_kv_heads: Span
    mlp: Span
    shared_mlp: Span
    experts: Span
    vocab: Span
    head: Span
    is_first: bool
    is_last: bool


def whole(spec: ModelSpec) -> ModelShard:
    """Everything, on one worker."""
    return shard_of(spec, ParallelConfig(), rank=0)


def shard_of(spec: ModelSpec, parallel: ParallelConfig, *, rank: int) -> ModelShard:
    """The part of a rank; `check_parallel` says whether there is one."""
    place = parallel.place(rank)
    index, parts = parallel.weight_part(rank)
    head_index, head_parts = parallel.head_part(rank)
    query_heads, kv_heads = _split_heads(spec, parts=parts, index=index)
    cache_parts = parts // parallel.tp  # 1, but where ranks that share the cache split the weights
    first, last = (
        _split_heads(spec, parts=parts, index=place.tensor * cache_parts + end) for end in (0, cache_parts - 1)
    )
    experts = spec.experts
    return ModelShard(
        layers=_stage_layers(spec, parallel)[place.stage],
        query_heads=query_heads,
        kv_heads=kv_heads,
        attended_query_heads=Span(first[0].start, last[0].stop),
        cached_kv_heads=Span(first[1].start, last[1].stop),
        mlp=split(spec.intermediate_size, parts=parts, index=index),
        shared_mlp=split(experts.shared_intermediate_size if experts else 0, parts=parts, index=index),
        experts=split(experts.num_experts if experts else 0, parts=parts, index=index),
        vocab=split(spec.vocab_size, parts=parts, index=index),
        head=split(spec.vocab_size, parts=head_parts, index=head_index),
        is_first=place.stage == 0,
        is_last=place.stage == parallel.pp - 1,
    )


def shard_weight_bytes(spec: ModelSpec, shard: ModelShard) -> int:
    """Bytes of a rank's weights, counted as `ModelSpec.weight_bytes` counts those of the whole model. What another
    engine takes from the checkpoint is split as the heads are."""
    if spec.stored_bytes:
        return spec.stored_bytes * len(shard.query_heads) // spec.num_heads
    num_heads = 2 * len(shard.query_heads) + 2 * len(shard.kv_heads)
    num_matrices, num_routers = 0, 0
    num_mlp_matrices = 3 if spec.family in GATED else 2
    for layer in shard.layers:
        num_matrices += spec.hidden_size * spec.head_dim * num_heads
        if spec.experts is not None and spec.is_sparse(layer):
            width = len(shard.experts) * spec.experts.intermediate_size + len(shard.shared_mlp)
            num_outputs = spec.experts.num_experts + (spec.experts.shared_intermediate_size > 0)
            num_routers += num_outputs * spec.hidden_size
        else:
            width = len(shard.mlp)
        num_matrices += num_mlp_matrices * spec.hidden_size * width
    num_positions = 0 if spec.rope or not shard.is_first else spec.num_position_rows * spec.hidden_size
    num_embedding_rows = len(shard.vocab) if shard.is_first else 0
    num_plain = num_routers + num_positions + num_embedding_rows * (spec.embedding_dim or spec.hidden_size)
    return num_matrices * _matrix_bytes(spec) + head_weight_bytes(spec, shard) + num_plain * spec.dtype_bytes


def head_weight_bytes(spec: ModelSpec, shard: ModelShard) -> int:
    """Bytes of a rank's part of the output head, which `shard_weight_bytes` has among others."""
    if spec.encoder is not None:  # each rank of the last stage has it whole
        return spec.num_head_weights * _matrix_bytes(spec) if shard.is_last else 0
    head_bytes = len(shard.head) * (spec.embedding_dim or spec.hidden_size) * _matrix_bytes(spec)
    return min(head_bytes, spec.stored_bytes or head_bytes)


def _matrix_bytes(spec: ModelSpec) -> int:
    """Of an element."""
    return QUANTIZATION_BYTES[spec.quantization] if spec.quantization else spec.dtype_bytes


def shard_kv_bytes_per_token(spec: ModelSpec, shard: ModelShard) -> int:
    """Bytes of keys and values of one token that lies on the rank."""
    if spec.encoder is not None:
        return 0
    return len(shard.layers) * spec.kv_width(len(shard.cached_kv_heads)) * spec.dtype_bytes


def check_parallel(spec: ModelSpec, parallel: ParallelConfig, *, num_workers: int) -> None:
    """Raises InvalidArgumentError naming the axis that the model or the workers do not allow, and the nearest layout
    that they do."""
    fault = _fault(spec, parallel, num_workers=num_workers)
    if fault is None:
        return
    field, reason = fault
    nearest = nearest_parallel(spec, parallel, num_workers=num_workers)
    if parallel.stage_layers and nearest.pp > 1:
        nearest = replace(nearest, stage_layers=tuple(len(layers) for layers in _stage_layers(spec, nearest)))
    hint = f"Use {nearest.flags}, which needs {nearest.num_ranks} workers."
    if nearest.num_ranks == 1:
        hint = "Use one worker."
    if field == "cp_ffn" and parallel.cp == 1:
        hint = "Give --cp 2 or more, or leave --cp-ffn out."
    raise InvalidArgumentError(reason, hint=hint, field=field)


def nearest_parallel(spec: ModelSpec, wanted: ParallelConfig, *, num_workers: int) -> ParallelConfig:
    """The layout with the most ranks, and of those the one that differs least, that model and workers allow."""
    stage_layers = wanted.stage_layers if next(_stage_faults(spec, wanted), None) is None else ()
    limits = (min(wanted.tp, spec.num_heads), min(wanted.pp, spec.num_layers), min(wanted.cp, num_workers))
    axes = product(*(range(1, max(1, limit) + 1) for limit in limits))
    layouts = (
        ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=ffn, stage_layers=stage_layers if pp == wanted.pp else ())
        for tp, pp, cp in axes
        for ffn in CP_FFN
    )
    allowed = [layout for layout in layouts if _fault(spec, layout, num_workers=num_workers) is None]

    def rank(layout: ParallelConfig) -> tuple[int, ...]:
        keeps_ffn = layout.cp_ffn == (wanted.cp_ffn if layout.cp > 1 else CP_FFN[0])
        return (layout.num_ranks, keeps_ffn, layout.tp, layout.cp, layout.pp)

    return max(allowed, key=rank, default=ParallelConfig())


def _split_heads(spec: ModelSpec, *, parts: int, index: int) -> tuple[Span, Span]:
    """(query heads, KV heads). A part has the query heads of its KV heads; a KV head that several parts hold has its
    query heads split over them."""
    group = spec.num_heads // spec.num_kv_heads
    if spec.num_kv_heads >= parts:
        kv_heads = split(spec.num_kv_heads, parts=parts, index=index)
        return Span(kv_heads.start * group, kv_heads.stop * group), kv_heads
    head, copy = divmod(index, parts // spec.num_kv_heads)
    share = split(group, parts=parts // spec.num_kv_heads, index=copy)
    return Span(head * group + share.start, head * group + share.stop), Span(head, head + 1)


def _stage_layers(spec: ModelSpec, parallel: ParallelConfig) -> list[Span]:
    sizes = parallel.stage_layers or tuple(
        len(split(spec.num_layers, parts=parallel.pp, index=stage)) for stage in range(parallel.pp)
    )
    starts = [sum(sizes[:stage]) for stage in range(parallel.pp)]
    return [Span(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def _fault(spec: ModelSpec, parallel: ParallelConfig, *, num_workers: int) -> tuple[str, str] | None:
    """(field, reason) of the first thing that stands against a layout."""
    return next(_faults(spec, parallel, num_workers=num_workers), None)


def _faults(spec: ModelSpec, parallel: ParallelConfig, *, num_workers: int) -> Iterator[tuple[str, str]]:
    for axis in ("tp", "pp", "cp"):
        if getattr(parallel, axis) < 1:
            yield axis, f"{axis} is {getattr(parallel, axis)}; it must be at least 1."
    if parallel.cp_ffn not in CP_FFN:
        yield "cp_ffn", f"cp_ffn is '{parallel.cp_ffn}'; it must be one of {', '.join(CP_FFN)}."
    if parallel.cp == 1 and parallel.cp_ffn != CP_FFN[0]:
        yield "cp_ffn", f"cp_ffn is '{parallel.cp_ffn}', which takes cp 2 or more."
    widest = next((axis for axis in ("tp", "pp", "cp") if getattr(parallel, axis) > 1), "tp")
    if spec.encoder is not None and parallel.cp > 1:
        yield "cp", f"{spec.architecture} does not generate: it has no keys and values to share over cp {parallel.cp}."
    if (fault := _head_fault(spec, parallel)) is not None:
        yield fault
    parts, axis = _weight_parts(parallel)
    if parts > min(spec.intermediate_size, spec.vocab_size):
        yield axis, f"{parallel} makes {parts} parts, and the MLP is {spec.intermediate_size} wide."
    if spec.experts is not None and spec.experts.num_experts < parts:
        yield axis, f"{parallel} makes {parts} parts, and the model has {spec.experts.num_experts} experts to spread."
    yield from _stage_faults(spec, parallel)
    if parallel.num_ranks > num_workers:
        yield widest, f"{parallel} needs {parallel.num_ranks} workers; there are {num_workers}."


def _weight_parts(parallel: ParallelConfig) -> tuple[int, str]:
    """How many ranks share each weight, and the axis that makes them so many."""
    is_tensor = parallel.cp_ffn == "tensor"
    return parallel.tp * (parallel.cp if is_tensor else 1), "cp" if is_tensor else "tp"


def _stage_faults(spec: ModelSpec, parallel: ParallelConfig) -> Iterator[tuple[str, str]]:
    parts, _ = _weight_parts(parallel)
    if parts * parallel.pp > spec.vocab_size:
        yield "pp", f"{parallel} splits the head in {parts * parallel.pp}, and the vocabulary is {spec.vocab_size}."
    if parallel.pp > spec.num_layers:
        yield "pp", f"pp is {parallel.pp}, and the model has {spec.num_layers} layers."
    layers = parallel.stage_layers
    if layers and (len(layers) != parallel.pp or sum(layers) != spec.num_layers or min(layers) < 1):
        text = ",".join(map(str, layers))
        yield "stage_layers", f"The stages {text} are not {parallel.pp} stages of {spec.num_layers} layers together."


def _head_fault(spec: ModelSpec, parallel: ParallelConfig) -> tuple[str, str] | None:
    parts, axis = _weight_parts(parallel)
    if parts <= spec.num_kv_heads:
        return None
    copies = parts // spec.num_kv_heads
    if parts % spec.num_kv_heads or copies > spec.num_heads // spec.num_kv_heads:
        return axis, (
            f"{spec.num_heads} heads over {spec.num_kv_heads} KV heads cannot be split in {parts}: it takes at most as "
            f"many parts as KV heads, or a multiple of them up to the number of heads."
        )
    return None
