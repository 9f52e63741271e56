"""Chooses whose step times the simulated clock goes by."""

from enum import StrEnum

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.model import ModelFamily, ModelSpec
from headway.planner.serving.roofline import estimate_latency


class Source(StrEnum):
    """Where a latency model comes from.

    A CPU computes more slowly than it reads, so that beyond a few sequences a larger batch gains it little; on the
    dissertation's GPU memory is what limits a batch, and with it the rate.
    """

    HERE = "here"  # the benchmark model, measured on this machine
    A100 = "a100"  # the dissertation's OPT-13B on an A100, by the planner's roofline


OPT_13B = ModelSpec(
    family=ModelFamily.OPT,
    architecture="OPTForCausalLM",
    vocab_size=50_272,
    hidden_size=5120,
    num_layers=40,
    num_heads=40,
    num_kv_heads=40,
    head_dim=128,
    intermediate_size=20_480,
    max_position=2048,
    dtype="float16",
    activation="relu",
    norm_eps=1e-5,
    tied_embeddings=True,
    attention_bias=True,
    attention_output_bias=True,
    mlp_bias=True,
)
A100 = Hardware(device="cuda", name="NVIDIA A100-SXM4-40GB", num_threads=1, memory_bytes=40 << 30)


def a100_latency() -> LatencyModel:
    """An estimate, good to about a factor of two; ratios between policies depend on it far less."""
    return estimate_latency(OPT_13B, A100)
