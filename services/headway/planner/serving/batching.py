"""Chooses how much one engine step may compute."""

from dataclasses import dataclass

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.latency import LatencyModel
from headway.core.plan.serving import EngineLimits

_BLOCK_SIZE = 16
_NUM_SEQS = {"cpu": 128, "cuda": 256}
_STEP_TOKENS = {"cpu": (128, 512), "cuda": (2048, 8192)}
_VLLM_CPU_STEP_TOKENS = 2048
"""For each device of a worker, as many as vLLM's own server takes: nobody who puts Headway before it should wait longer
for a burst. A test asks vLLM (tests/engines/test_vllm_loading.py)."""
_LONGEST_STEP_S = 0.4
_PREEMPTIONS = ("auto", "recompute", "swap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """The limits of an engine's batches, all of them chosen."""

    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_cache: bool
    max_num_prefill_tokens: int | None = None
    preemption: str = "auto"
    num_draft_tokens: int = 0


def choose_batching(
    limits: EngineLimits, *, device: str, estimate: LatencyModel, engine: EngineKind = EngineKind.HEADWAY
) -> Batching:
    """Takes the operator's limits, and chooses those that are open.

    Args:
        estimate: never a measured profile, so that measuring changes a plan's predictions and not its limits: the
            model need not be loaded again.

    Raises:
        InvalidArgumentError: a limit is not positive, or the limits exclude each other.
    """
    _check(limits)
    step_tokens = limits.max_num_batched_tokens
    if step_tokens is None and engine is not EngineKind.HEADWAY and device == "cpu":
        step_tokens = _VLLM_CPU_STEP_TOKENS * limits.parallel.tp
    if step_tokens is None:
        step_tokens = _step_tokens(_STEP_TOKENS[device], estimate)
    num_usual_seqs = _NUM_SEQS[device] * limits.parallel.pp  # each stage has a batch of its own under way
    num_seqs = limits.max_num_seqs or min(num_usual_seqs, step_tokens)
    if limits.max_num_batched_tokens is None:
        step_tokens = max(step_tokens, num_seqs)
    if num_seqs > step_tokens:
        raise InvalidArgumentError(
            f"max_num_seqs is {num_seqs} but max_num_batched_tokens only {step_tokens}.",
            hint="Every running sequence decodes one token a step: raise the one or lower the other.",
            field="max_num_batched_tokens",
        )
    return Batching(
        block_size=limits.block_size or _BLOCK_SIZE,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=step_tokens,
        enable_prefix_cache=limits.enable_prefix_cache is not False,
        max_num_prefill_tokens=limits.max_num_prefill_tokens,
        preemption=limits.preemption or _PREEMPTIONS[0],
        num_draft_tokens=limits.num_draft_tokens or 0,
    )


def _step_tokens(bounds: tuple[int, int], estimate: LatencyModel) -> int:
    """The largest power of two of tokens whose prefill keeps a step short: decodes wait for it."""
    least, most = bounds
    num_tokens = most
    while (
        num_tokens > least
        and estimate.step_s(prefill_tokens=num_tokens, num_decodes=0, context_tokens=0) > _LONGEST_STEP_S
    ):
        num_tokens //= 2
    return num_tokens


def _check(limits: EngineLimits) -> None:
    for name in ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_num_prefill_tokens", "kv_cache_bytes"):
        value = getattr(limits, name)
        if value is not None and value <= 0:
            raise InvalidArgumentError(f"{name} is {value}, it must be positive.", field=name)
    for name in ("host_cache_bytes", "num_draft_tokens"):
        value = getattr(limits, name)
        if value is not None and value < 0:
            raise InvalidArgumentError(f"{name} is {value}, it must not be negative.", field=name)
    if limits.preemption is not None and limits.preemption not in _PREEMPTIONS:
        raise InvalidArgumentError(
            f"preemption is '{limits.preemption}', it must be one of {', '.join(_PREEMPTIONS)}.", field="preemption"
        )
    if limits.preemption == "swap" and not limits.host_cache_bytes:
        raise InvalidArgumentError(
            "preemption is swap, but there is no host memory to swap to.",
            hint="Set host_cache_bytes (--swap-space).",
            field="preemption",
        )
