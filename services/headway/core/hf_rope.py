"""Reads the rotary-embedding part of a Hugging Face `config.json`."""

import math
from collections.abc import Mapping
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.core.model import RopeSpec

ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
_DEFAULT_THETA = {"smollm3": 2_000_000.0, "mixtral": 1_000_000.0}


def rope_from_config(config: Mapping[str, Any], *, head_dim: int, max_position: int) -> tuple[RopeSpec, int]:
    """The rotary embedding, and the longest sequence once its scaling stretches `max_position`.

    Raises:
        InvalidArgumentError: for a kind that is not supported or lacks its parameters.
    """
    scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_KINDS:
        raise InvalidArgumentError(
            f"rope_type {kind!r} is not supported.", hint=f"Supported: {', '.join(ROPE_KINDS)}.", field="rope_type"
        )
    theta = scaling.get("rope_theta") or config.get("rope_theta")
    partial = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    # Only these two scale from a context length of their own; the others from the configured one.
    stated = scaling.get("original_max_position_embeddings") if kind in ("llama3", "yarn") else None
    original = int(stated or max_position)
    factor = _factor(scaling, kind, max_position / original)
    rope = RopeSpec(
        theta=float(theta or _DEFAULT_THETA.get(str(config.get("model_type")), 10_000.0)),
        rotary_dim=int(head_dim * float(partial)),
        kind=kind,
        factor=factor,
        original_max_position=original,
        low_freq_factor=float(scaling.get("low_freq_factor") or 1.0),
        high_freq_factor=float(scaling.get("high_freq_factor") or 4.0),
        beta_fast=float(scaling.get("beta_fast") or 32.0),
        beta_slow=float(scaling.get("beta_slow") or 1.0),
        truncate=bool(scaling.get("truncate", True)),
        attention_factor=_attention_factor(scaling, factor) if kind == "yarn" else None,
    )
    stretches = kind in ("linear", "dynamic", "yarn")
    return rope, max(max_position, int(original * factor)) if stretches else max_position


def _factor(scaling: Mapping[str, Any], kind: str, context_ratio: float) -> float:
    if kind == "default":
        return 1.0
    factor = scaling.get("factor")
    if factor is None and kind == "yarn":
        return context_ratio
    if not isinstance(factor, int | float) or factor < 1:
        raise InvalidArgumentError(
            f"rope scaling {kind!r} needs a factor of at least 1, not {factor!r}.", field="factor"
        )
    return float(factor)


def _attention_factor(scaling: Mapping[str, Any], factor: float) -> float:
    """Scale of cos and sin that keeps the attention entropy (YaRN, section 3.4)."""
    stated = scaling.get("attention_factor")
    if stated is not None:
        return float(stated)
    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return _entropy_scale(factor, mscale) / _entropy_scale(factor, mscale_all_dim)
    return _entropy_scale(factor, 1.0)


def _entropy_scale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0
