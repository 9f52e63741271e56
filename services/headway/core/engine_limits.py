"""What of a model, and of an operator's limits, other engines cannot do. Pure."""

from headway.core.engine_kind import FEATURES, EngineKind, Feature
from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.plan.serving import EngineLimits


def lacking(limits: EngineLimits, kind: EngineKind) -> tuple[str, Feature] | None:
    """The first field that asks for something that the engine lacks, and what that is; None where it can keep all."""
    parallel = limits.parallel
    asked = (
        ("tp", parallel.tp > 1, Feature.TENSOR_PARALLEL),
        ("pp", parallel.pp > 1, Feature.GROUPS),
        ("cp", parallel.cp > 1, Feature.GROUPS),
        ("prefill_workers", limits.is_disaggregated, Feature.BLOCK_TRANSFER),
        ("host_cache_bytes", bool(limits.host_cache_bytes), Feature.HOST_CACHE),
        ("preemption", limits.preemption not in (None, "auto", "recompute"), Feature.HOST_CACHE),
        ("num_draft_tokens", bool(limits.num_draft_tokens), Feature.DRAFT_TOKENS),
        ("max_num_prefill_tokens", limits.max_num_prefill_tokens is not None, Feature.PREFILL_LIMIT),
    )
    return next(
        ((field, feature) for field, is_set, feature in asked if is_set and feature not in FEATURES[kind]), None
    )


def check_model(name: str, spec: ModelSpec, engine: EngineKind) -> None:
    """InvalidArgumentError where the engine cannot compute a model of this shape."""
    if engine is not EngineKind.HEADWAY and spec.encoder is not None:
        raise InvalidArgumentError(
            f"{name} does not generate, and {engine} lacks {Feature.ENCODERS} here.",
            hint=f"Serve it with --engine {name}=headway.",
            field="--engine",
        )
