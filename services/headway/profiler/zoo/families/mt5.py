"""mT5: an encoder and a decoder that share one embedding, relative position biases, gated MLPs without biases."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True)
class Mt5Config:
    """Sizes of an mT5, half of whose layers are the encoder's; implements `headway.profiler.zoo.model.Architecture`.

    `has_output_matrix` tells a matrix of its own for the logits from the shared embedding.
    """

    num_layers: int
    hidden: int
    num_heads: int
    vocabulary: int
    seq: int
    has_output_matrix: bool = False
    num_buckets: int = 32
    max_distance: int = 128

    @property
    def inner(self) -> int:
        """Width of the MLP, 2.75 times the hidden size as in mT5-large."""
        return self.hidden * 11 // 4

    def small(self) -> Self:
        return replace(self, num_layers=4, hidden=32, num_heads=4, vocabulary=64, seq=16)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        """Makes ids of the source's and of the target's tokens, equally many."""
        return (InputSpec((batch, seq), self.vocabulary), InputSpec((batch, seq), self.vocabulary))

    def targets(self, *, batch: int, seq: int) -> InputSpec:
        """Makes the token that follows each of the target's."""
        return InputSpec((batch, seq), self.vocabulary)


_NOTE = "The table leaves the MLP's width and the sequence length open: those of mT5-large, and 1024."


def _tessel(size: str, parameters: int, config: Mt5Config, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"tessel-mt5-{size}",
        family="mt5",
        source="Tessel table III",
        config=config,
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=_NOTE + note,
    )


MODELS = (
    _tessel(
        "1.8b",
        1_800_000_000,
        Mt5Config(48, 1024, 16, vocabulary=512_000, seq=1024, has_output_matrix=True),
        note=" 1.8B needs an output matrix of its own, as mT5 has; the larger rows fit only without one.",
    ),
    _tessel("9.5b", 9_500_000_000, Mt5Config(48, 3072, 24, vocabulary=1_000_000, seq=1024)),
    _tessel("43b", 43_000_000_000, Mt5Config(64, 6144, 48, vocabulary=1_500_000, seq=1024)),
    _tessel("88b", 88_000_000_000, Mt5Config(80, 8192, 64, vocabulary=1_500_000, seq=1024)),
)
