"""Step latencies estimated from the hardware's name, for models that nobody has measured yet.

A roofline: every product runs at the device's usual FLOP/s, every weight and every key and value is read once a step
at its bandwidth. Good to about a factor of two, which is enough to size batches and to compare models with each other;
a measured profile replaces it as soon as there is one.
"""

from dataclasses import dataclass

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec

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
_CPU_FLOPS_PER_THREAD = 120e9
_CPU_BYTES_PER_S_PER_THREAD = 10e9
_CPU_BYTES_PER_S = 80e9


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


def estimate_latency(spec: ModelSpec, hardware: Hardware) -> LatencyModel:
    """Coefficients from the model's shape. The output head runs for sampled tokens only, so not for a prefill's.

    In an encoder, which decodes nothing, each token sees all others of its sequence: twice the pairs of a decoder.
    """
    roofline = roofline_of(hardware)
    computes_in_float32 = spec.dtype_bytes == 4 or (spec.quantization is not None and hardware.device == "cpu")
    flops = roofline.flops * (0.5 if computes_in_float32 else 1.0)
    is_encoder = spec.encoder is not None
    head_flops = 0 if is_encoder else 2 * spec.vocab_size * (spec.embedding_dim or spec.hidden_size)
    score_flops = 4 * spec.num_layers * spec.num_heads * spec.head_dim  # one query, one key: q.k and p.v
    return LatencyModel(
        base_s=roofline.step_overhead_s + spec.weight_bytes / roofline.bytes_per_s,
        per_prefill_token_s=(spec.flops_per_token - head_flops) / flops,
        per_prefill_pair_s=(2 if is_encoder else 1) * score_flops / flops,
        per_decode_s=0.0 if is_encoder else spec.flops_per_token / flops + roofline.sequence_overhead_s,
        per_context_token_s=spec.kv_bytes_per_token / roofline.bytes_per_s,
        relative_error=ESTIMATE_ERROR,
        origin="estimated",
    )
