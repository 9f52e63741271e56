"""Step latencies estimated from the hardware's name, for models that nobody has measured yet.

A roofline: every product runs at the device's usual FLOP/s, every weight and every key and value is read once a step
at its bandwidth. In a group each worker does this for its part, then they add up what they have: twice in every layer.
Good to about a factor of two, which is enough to size batches and to compare models with each other; a measured profile
replaces it as soon as there is one.
"""

from dataclasses import dataclass

from headway.core.cluster import Fabric, Hardware
from headway.core.latency import LatencyModel
from headway.core.mesh import SINGLE, ParallelConfig
from headway.core.model import ModelSpec
from headway.core.shard import shard_kv_bytes_per_token, shard_of, shard_weight_bytes

ESTIMATE_ERROR = 0.5
"""Relative error that an estimate states for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What a device reaches in practice, about 60 % of its data sheet.

    Attributes:
        flops: multiply-adds times two per second, in 16-bit floats; half of it in float32.
        bytes_per_s: memory bandwidth.
        step_overhead_s, sequence_overhead_s: scheduling and launching, per step and per sequence in it.
    """

    flops: float
    bytes_per_s: float
    step_overhead_s: float
    sequence_overhead_s: float


# Longest name first: "H100 NVL" would have to stand before "H100".
_GPUS = (
    ("B200", 1350e12, 4.8e12),
    ("H200", 590e12, 2.9e12),
    ("H100", 590e12, 2.0e12),
    ("A100", 190e12, 1.2e12),
    ("L40S", 220e12, 0.52e12),
    ("L4", 70e12, 0.18e12),
    ("A10", 75e12, 0.36e12),
    ("T4", 39e12, 0.19e12),
)
_UNKNOWN_GPU = (75e12, 0.36e12)
_LOGIT_BYTES = 4
_CPU_FLOPS_PER_THREAD = 120e9
_CPU_BYTES_PER_S_PER_THREAD = 10e9
_CPU_BYTES_PER_S = 80e9
_LOOPBACK = Fabric(latency_s=150e-6, bytes_per_s=1.5e9)
_NVLINK = Fabric(latency_s=20e-6, bytes_per_s=200e9)
_PCIE = Fabric(latency_s=30e-6, bytes_per_s=12e9)
_LINKED_GPUS = ("B200", "H200", "H100", "A100")


def roofline_of(hardware: Hardware) -> Roofline:
    """A GPU by its name, a CPU by its number of threads."""
    if hardware.device == "cpu":
        return Roofline(
            flops=_CPU_FLOPS_PER_THREAD * hardware.num_threads,
            bytes_per_s=min(_CPU_BYTES_PER_S, _CPU_BYTES_PER_S_PER_THREAD * hardware.num_threads),
            step_overhead_s=1e-3,
            sequence_overhead_s=50e-6,
        )
    known = ((flops, bandwidth) for name, flops, bandwidth in _GPUS if name in hardware.name)
    flops, bytes_per_s = next(known, _UNKNOWN_GPU)
    return Roofline(flops=flops, bytes_per_s=bytes_per_s, step_overhead_s=2e-3, sequence_overhead_s=10e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """Seconds that a group's workers spend on sending: in each step, for each token in it, for each decode."""

    step_s: float
    token_s: float
    decode_s: float


def fabric_of(hardware: Hardware) -> Fabric:
    """What usually connects workers of that kind on one machine."""
    if hardware.device == "cpu":
        return _LOOPBACK
    return _NVLINK if any(name in hardware.name for name in _LINKED_GPUS) else _PCIE


def estimate_latency(spec: ModelSpec, hardware: Hardware, parallel: ParallelConfig = SINGLE) -> LatencyModel:
    """Coefficients from the shape of the model, or of the largest part of it where a group shares each layer.

    The output head runs for sampled tokens only, so not for a prefill's. In an encoder, which decodes nothing, each
    token sees all others of its sequence: twice the pairs of a decoder.

    Args:
        hardware: of every worker of the group.
    """
    roofline = roofline_of(hardware)
    computes_in_float32 = spec.dtype_bytes == 4 or (spec.quantization is not None and hardware.device == "cpu")
    flops = roofline.flops * (0.5 if computes_in_float32 else 1.0)
    is_encoder = spec.encoder is not None
    head_flops = 0 if is_encoder else 2 * spec.vocab_size * (spec.embedding_dim or spec.hidden_size) / parallel.tp
    token_flops = spec.flops_per_token / parallel.tp
    shards = [shard_of(spec, parallel, rank=rank) for rank in range(parallel.num_ranks)]
    num_heads = max(len(shard.query_heads) for shard in shards)
    score_flops = 4 * spec.num_layers * num_heads * spec.head_dim  # one query, one key: q.k and p.v
    weight_bytes = max(shard_weight_bytes(spec, shard) for shard in shards)
    exchange = _estimate_exchange(spec, fabric_of(hardware), parallel)
    decode_s = token_flops / flops + roofline.sequence_overhead_s + exchange.decode_s
    return LatencyModel(
        base_s=roofline.step_overhead_s + weight_bytes / roofline.bytes_per_s + exchange.step_s,
        per_prefill_token_s=(token_flops - head_flops) / flops + exchange.token_s,
        per_prefill_pair_s=(2 if is_encoder else 1) * score_flops / flops,
        per_decode_s=0.0 if is_encoder else decode_s,
        per_context_token_s=max(shard_kv_bytes_per_token(spec, shard) for shard in shards) / roofline.bytes_per_s,
        relative_error=ESTIMATE_ERROR,
        origin="estimated",
    )


def _estimate_exchange(spec: ModelSpec, fabric: Fabric, parallel: ParallelConfig) -> _Exchange:
    """Embeddings and twice in each layer activations are summed in a ring; logits are sent to the leader."""
    if parallel.tp == 1:
        return _Exchange(step_s=0.0, token_s=0.0, decode_s=0.0)
    num_sums = 2 * spec.num_layers + 1
    sent_share = 2 * (parallel.tp - 1) / parallel.tp  # of what is summed, by each worker
    token_s = num_sums * sent_share * spec.hidden_size * spec.dtype_bytes / fabric.bytes_per_s
    logits_s = spec.vocab_size / parallel.tp * _LOGIT_BYTES / fabric.bytes_per_s
    return _Exchange(step_s=(num_sums + 1) * fabric.latency_s, token_s=token_s, decode_s=token_s + logits_s)
