"""Llama and its relatives: RMS norms, rotary positions, gated MLPs, and in Qwen's case mixtures of experts."""

from dataclasses import dataclass, replace
from typing import Self

from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec, RopeSpec
from headway.profiler.zoo.model import InputSpec, ZooModel

_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A mixture of experts in the place of every MLP; `shared_inner` is the width of an expert that sees all tokens.

    An expert has room for `capacity_factor` times its equal share of the tokens; the router's least preferred tokens
    beyond that are dropped, so that shapes do not depend on data.
    """

    num_experts: int
    num_experts_per_token: int
    inner: int
    shared_inner: int = 0
    is_normalized: bool
    capacity_factor: float = 1.0

    def small(self) -> Self:
        return replace(self, num_experts=4, num_experts_per_token=2, inner=16, shared_inner=min(self.shared_inner, 48))

    @property
    def spec(self) -> ExpertsSpec:
        return ExpertsSpec(
            num_experts=self.num_experts,
            num_experts_per_tok=self.num_experts_per_token,
            intermediate_size=self.inner,
            shared_intermediate_size=self.shared_inner,
            is_normalized=self.is_normalized,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Sizes of a Llama; implements `headway.profiler.zoo.model.Architecture`. `inner` is the width of the MLP where
    there are no experts."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    inner: int = 0
    vocabulary: int
    seq: int
    head_dim: int = 128
    rotary_base: float = 1e4
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    experts: ExpertsConfig | None = None

    def small(self) -> Self:
        return replace(
            self,
            num_layers=2,
            hidden=32,
            num_heads=4,
            num_kv_heads=4 if self.num_kv_heads == self.num_heads else 2,
            inner=48,
            vocabulary=64,
            seq=16,
            head_dim=8,
            experts=self.experts and self.experts.small(),
        )

    @property
    def spec(self) -> ModelSpec:
        """As a checkpoint of it would say, in float32."""
        return ModelSpec(
            family=ModelFamily.LLAMA,
            architecture="LlamaForCausalLM",
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.inner,
            max_position=self.seq,
            dtype="float32",
            activation="silu",
            norm_eps=_NORM_EPS,
            rope=RopeSpec(theta=self.rotary_base, rotary_dim=self.head_dim),
            attention_bias=self.has_qkv_bias,
            qk_norm=self.has_qk_norm,
            experts=None if self.experts is None else self.experts.spec,
        )

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        return (InputSpec((batch, seq), self.vocabulary),)

    def targets(self, *, batch: int, seq: int) -> InputSpec:
        """Makes the token that follows each."""
        return InputSpec((batch, seq), self.vocabulary)


MODELS = (
    ZooModel(
        name="llama-7b",
        family="llama",
        source="Llama 2 (Touvron et al. 2023), parameters of Llama table 2",
        config=LlamaConfig(
            num_layers=32, hidden=4096, num_heads=32, num_kv_heads=32, inner=11008, vocabulary=32000, seq=4096
        ),
        is_trained_in_paper=True,
        expected_parameters=6_700_000_000,
    ),
    ZooModel(
        name="llama-70b",
        family="llama",
        source="Llama 2 table 1 (Touvron et al. 2023)",
        config=LlamaConfig(
            num_layers=80, hidden=8192, num_heads=64, num_kv_heads=8, inner=28672, vocabulary=32000, seq=4096
        ),
        is_trained_in_paper=True,
        expected_parameters=70_000_000_000,
    ),
    ZooModel(
        name="qwen1.5-moe-a2.7b",
        family="llama",
        source="Qwen1.5-MoE (Qwen Team 2024)",
        config=LlamaConfig(
            num_layers=24,
            hidden=2048,
            num_heads=16,
            num_kv_heads=16,
            vocabulary=151936,
            seq=8192,
            rotary_base=1e6,
            has_qkv_bias=True,
            experts=ExpertsConfig(
                num_experts=60, num_experts_per_token=4, inner=1408, shared_inner=5632, is_normalized=False
            ),
        ),
        is_trained_in_paper=True,
        expected_parameters=14_300_000_000,
    ),
    ZooModel(
        name="qwen3-30b-a3b",
        family="llama",
        source="Qwen3-30B-A3B (Qwen Team 2025)",
        config=LlamaConfig(
            num_layers=48,
            hidden=2048,
            num_heads=32,
            num_kv_heads=4,
            vocabulary=151936,
            seq=32768,
            rotary_base=1e6,
            has_qk_norm=True,
            experts=ExpertsConfig(num_experts=128, num_experts_per_token=8, inner=768, is_normalized=True),
        ),
        is_trained_in_paper=True,
        expected_parameters=30_500_000_000,
    ),
)
