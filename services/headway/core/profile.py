"""The measured profile of a model on a kind of worker."""

import hashlib
from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasurement:
    """Median seconds of one engine step: one prefill chunk of `prefill_tokens` with `num_decodes` decodes beside it.

    Each sequence has `context_tokens` tokens in the cache before the step.
    """

    prefill_tokens: int
    num_decodes: int
    context_tokens: int
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements, and the latency model fitted to them.

    `profile_id` names model, hardware, software and, of a group, its layout; `hardware` is then that of each worker.
    """

    profile_id: str
    architecture: str
    model_hash: str
    hardware: Hardware
    measurements: tuple[StepMeasurement, ...]
    latency: LatencyModel
    created_at_s: float


def profile_id(spec: ModelSpec, hardware: Hardware, parallel: ParallelConfig = SINGLE, *, backend: str = "") -> str:
    """The same while nothing that timings depend on changes. `backend`: see `ModelDeployment`."""
    text = f"{spec.content_hash}:{hardware.content_hash}"
    if parallel.num_ranks > 1:  # else as ever, so that what was measured stays known
        text += f":{parallel}:{parallel.stage_layers}:{parallel.cp_ffn}"
    if backend:
        text += f":{backend}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
