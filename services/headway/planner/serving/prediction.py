"""Predicts what a replica gives, from the latency of its steps."""

from headway.core.latency import LatencyModel
from headway.core.plan.serving import Prediction

REFERENCE_TOKENS = 512
"""Length of the prompt, and of the context, that predictions speak of."""


def predict(
    latency: LatencyModel,
    *,
    profile_id: str,
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_model_len: int,
) -> Prediction:
    """Predicts latencies of an idle replica and of a full one."""
    num_tokens = min(REFERENCE_TOKENS, max_model_len - 1)
    num_seqs = max(1, min(max_num_seqs, num_blocks // -(-num_tokens // block_size)))
    tpot_loaded_s = latency.decode_s(num_decodes=num_seqs, context_tokens=num_seqs * num_tokens)
    return Prediction(
        ttft_s=latency.prefill_s(num_tokens, chunk_tokens=max_num_batched_tokens),
        tpot_s=latency.decode_s(num_decodes=1, context_tokens=num_tokens),
        tpot_loaded_s=tpot_loaded_s,
        output_tokens_per_s=num_seqs / tpot_loaded_s,
        latency=latency,
        profile_id=profile_id,
    )
