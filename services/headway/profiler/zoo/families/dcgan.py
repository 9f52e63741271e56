"""DCGAN's generator: a random vector becomes an image through transposed convolutions."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class DcganConfig:
    """Sizes of a DCGAN generator; implements `headway.profiler.zoo.model.Architecture`.

    The vector is projected to 4 x 4 pixels of `channels[0]` channels; each convolution doubles the sides and yields the
    next number of channels, the last one an image's three.
    """

    latent: int = 100
    channels: tuple[int, ...] = (1024, 512, 256, 128)
    kernel: int = 5

    @property
    def seq(self) -> None:
        return None

    def small(self) -> Self:
        return replace(self, latent=8, channels=(16, 12, 8, 4))

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:  # noqa: ARG002 - it has no sequences
        return (InputSpec((batch, self.latent)),)

    def targets(self, *, batch: int, seq: int) -> None:  # noqa: ARG002 - it has no classes
        return None


MODELS = (
    ZooModel(
        name="dcgan",
        family="dcgan",
        source="Collage section 2.5.1 (Radford et al. 2015, figure 1)",
        config=DcganConfig(),
        is_trained_in_paper=False,
    ),
)
