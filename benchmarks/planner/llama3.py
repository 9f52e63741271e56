"""Llama 3.1 in the sizes that torchtitan publishes figures of, for capture as `benchmarks.planner.llama3:NAME`."""

from torch import nn

from headway.profiler.zoo.families.llama import LlamaConfig
from headway.profiler.zoo.networks.llama import Llama

_VOCABULARY, _SEQ = 128256, 8192


def llama_8b() -> nn.Module:
    return _llama(num_layers=32, hidden=4096, num_heads=32, inner=14336)


def llama_70b() -> nn.Module:
    return _llama(num_layers=80, hidden=8192, num_heads=64, inner=28672)


def llama_405b() -> nn.Module:
    return _llama(num_layers=126, hidden=16384, num_heads=128, inner=53248)


def _llama(*, num_layers: int, hidden: int, num_heads: int, inner: int) -> nn.Module:
    config = LlamaConfig(
        num_layers=num_layers,
        hidden=hidden,
        num_heads=num_heads,
        num_kv_heads=8,
        inner=inner,
        vocabulary=_VOCABULARY,
        seq=_SEQ,
        rotary_base=5e5,
    )
    return Llama(config)
