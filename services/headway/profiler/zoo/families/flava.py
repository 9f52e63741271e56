"""Flava: a text and a vision encoder side by side, and a cross encoder over the outputs of both."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavaConfig:
    """Sizes of a Flava, in pixels for the square images; implements `headway.profiler.zoo.model.Architecture`."""

    num_text_layers: int
    num_vision_layers: int
    num_cross_layers: int
    hidden: int
    num_heads: int
    vocabulary: int
    seq: int
    image_size: int = 224
    patch_size: int = 16

    def small(self) -> Self:
        return replace(
            self,
            num_text_layers=2,
            num_vision_layers=2,
            num_cross_layers=2,
            hidden=32,
            num_heads=4,
            vocabulary=64,
            seq=16,
            image_size=16,
            patch_size=8,
        )

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        """Makes token ids and images."""
        return (InputSpec((batch, seq), self.vocabulary), InputSpec((batch, 3, self.image_size, self.image_size)))

    def targets(self, *, batch: int, seq: int) -> None:  # noqa: ARG002 - it has no classes
        return None


MODELS = (
    ZooModel(
        name="tessel-flava",
        family="flava",
        source="Tessel figure 15",
        config=FlavaConfig(
            num_text_layers=8,
            num_vision_layers=8,
            num_cross_layers=8,
            hidden=4096,
            num_heads=32,
            vocabulary=30522,
            seq=512,
        ),
        is_trained_in_paper=False,
        note="The figure says 24 layers, read as the sum of three equal encoders (Tessel counts mT5's layers so); "
        "vocabulary, text length, image and patch sizes are FLAVA's (Singh et al. 2022).",
    ),
)
