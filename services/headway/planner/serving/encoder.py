"""A replica of a model that does not generate: weights and workspace, no KV blocks."""

from headway.core.cluster import PlanWorker
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.plan import Assignment, ModelDeployment, Prediction
from headway.planner.serving.batching import Batching
from headway.planner.serving.memory import Shortfall, shortest_len
from headway.planner.serving.prediction import REFERENCE_TOKENS
from headway.planner.serving.workspace import RUNTIME_BYTES

_FLOAT_BYTES = 4


def size_encoder(
    model: ModelDeployment,
    worker: PlanWorker,
    *,
    group_id: str,
    batching: Batching,
    latency: LatencyModel,
    profile_id: str,
) -> Assignment | Shortfall:
    """The assignment of an encoder to `worker`, or why it does not fit.

    Args:
        latency: measured or estimated; `profile_id` is empty for an estimate.

    Raises:
        InvalidArgumentError: the model cannot take sequences as long as they are to be.
    """
    spec = model.spec
    shortest_len(model)
    max_model_len = model.max_model_len or spec.max_position
    step_tokens = max(batching.max_num_batched_tokens, max_model_len)
    reserved_bytes = _reserve(spec, device=worker.hardware.device, step_tokens=step_tokens)
    missing_bytes = spec.weight_bytes + reserved_bytes - worker.hardware.memory_bytes
    if missing_bytes > 0:
        return Shortfall(worker=worker, missing_bytes=missing_bytes, longest_len=0)
    return Assignment(
        group_id=group_id,
        worker_id=worker.worker_id,
        model=model.name,
        weight_bytes=spec.weight_bytes,
        kv_cache_bytes=0,
        reserved_bytes=reserved_bytes,
        num_blocks=0,
        block_size=batching.block_size,
        max_num_seqs=batching.max_num_seqs,
        max_num_batched_tokens=batching.max_num_batched_tokens,
        max_model_len=max_model_len,
        enable_prefix_cache=False,
        prediction=_predict(latency, profile_id, step_tokens=step_tokens, max_model_len=max_model_len),
    )


def _reserve(spec: ModelSpec, *, device: str, step_tokens: int) -> int:
    """Bytes of the runtime itself and the widest activations of one step."""
    width = 6 * spec.hidden_size + spec.intermediate_size
    return RUNTIME_BYTES[device] + step_tokens * width * _FLOAT_BYTES


def _predict(latency: LatencyModel, profile_id: str, *, step_tokens: int, max_model_len: int) -> Prediction:
    """A sequence alone on an idle replica, and steps full of such sequences."""
    num_tokens = min(REFERENCE_TOKENS, max_model_len)
    num_sequences = max(1, step_tokens // num_tokens)
    alone_s = latency.step_s(prefill_tokens=num_tokens, num_decodes=0, context_tokens=0)
    full_s = latency.base_s + num_sequences * (alone_s - latency.base_s)
    return Prediction(
        ttft_s=alone_s,
        tpot_s=0.0,
        tpot_loaded_s=0.0,
        output_tokens_per_s=0.0,
        input_tokens_per_s=num_sequences * num_tokens / full_s,
        latency=latency,
        profile_id=profile_id,
    )
