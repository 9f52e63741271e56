"""GShard MoE: a decoder-only transformer in which a mixture of experts replaces every second MLP."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True)
class GShardConfig:
    """Sizes of a GShard MoE, in which a token goes to `num_experts_per_token` experts; implements
    `headway.profiler.zoo.model.Architecture`."""

    hidden: int
    num_layers: int
    num_heads: int
    num_experts: int
    vocabulary: int
    seq: int
    inner_factor: int = 8
    num_experts_per_token: int = 2

    def small(self) -> Self:
        return replace(self, hidden=32, num_layers=4, num_heads=4, num_experts=4, vocabulary=64, seq=16, inner_factor=2)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        return (InputSpec((batch, seq), self.vocabulary),)

    def targets(self, *, batch: int, seq: int) -> InputSpec:
        """Makes the token that follows each."""
        return InputSpec((batch, seq), self.vocabulary)


def _alpa(size: str, parameters: int, hidden: int, layers: int, heads: int, experts: int, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"alpa-moe-{size}",
        family="gshard",
        source="Alpa table 3.7",
        config=GShardConfig(hidden, layers, heads, experts, vocabulary=32000, seq=1024),
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=_INNER_NOTE + note,
    )


def _alpaserve(size: str, parameters: int, hidden: int, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"alpaserve-moe-{size}",
        family="gshard",
        source="AlpaServe table 4.1",
        config=GShardConfig(hidden, 16, 16, 16, vocabulary=32000, seq=2048),
        is_trained_in_paper=False,
        expected_parameters=parameters,
        note="The table gives sizes in GB alone; the dimensions are " + (note or "Alpa's."),
    )


_INNER_NOTE = "The table leaves the MLP's width open; only 8 times the hidden size gives its parameters."
_ROUNDED_NOTE = (
    " It rounds 1.347B to 1.3B: 8 layers of 16 experts have 1.208B, 8 MLPs 0.075B, attention 0.038B, embeddings 0.025B."
)

MODELS = (
    _alpa("380m", 380_000_000, 768, 8, 16, 8),
    _alpa("1.3b", 1_300_000_000, 768, 16, 16, 16, note=_ROUNDED_NOTE),
    _alpa("2.4b", 2_400_000_000, 1024, 16, 16, 16),
    _alpa("10b", 10_000_000_000, 1536, 16, 16, 32),
    _alpa("27b", 27_000_000_000, 2048, 16, 32, 48),
    _alpa("70b", 70_000_000_000, 2048, 32, 32, 64),
    _alpaserve("1.3b", 1_300_000_000, 768, note="Alpa's, whose table rounds 1.347B to 1.3B."),
    _alpaserve("2.4b", 2_400_000_000, 1024),
    _alpaserve("5.3b", 5_300_000_000, 1536, note="those that give 5.3B."),
)
