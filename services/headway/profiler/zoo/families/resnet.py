"""Residual networks of bottleneck blocks: wide, grouped (ResNeXt) and over videos (3D)."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetConfig:
    """Sizes of a ResNet; implements `headway.profiler.zoo.model.Architecture`.

    Stage i has `blocks[i]` blocks of base_channels * 2**i channels, multiplied by `squeeze` after the first convolution
    of a block, by `width` after the second, which is in `groups`, and by 4 after the third.
    Videos have as many `frames` as given, images none; both are square, in pixels.
    """

    blocks: tuple[int, ...]
    base_channels: int
    squeeze: int = 1
    width: int = 1
    groups: int = 1
    num_classes: int
    image_size: int = 224
    frames: int = 0

    @property
    def seq(self) -> None:
        return None

    def small(self) -> Self:
        return replace(
            self,
            blocks=(2,) * len(self.blocks),
            base_channels=8,
            groups=min(self.groups, 4),
            num_classes=8,
            image_size=32,
            frames=min(self.frames, 8),
        )

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:  # noqa: ARG002 - it has no sequences
        video = (self.frames,) if self.frames else ()
        return (InputSpec((batch, 3, *video, self.image_size, self.image_size)),)

    def targets(self, *, batch: int, seq: int) -> InputSpec:  # noqa: ARG002 - it has no sequences
        """Makes the label of each image."""
        return InputSpec((batch,), self.num_classes)


def _alpa(size: str, parameters: int, layers: int, base_channels: int, width: int, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"wide-resnet-{size}",
        family="resnet",
        source="Alpa table 3.8",
        config=ResNetConfig(blocks=BLOCKS[layers], base_channels=base_channels, width=width, num_classes=1024),
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=note,
    )


MODELS = (
    _alpa("250m", 250_000_000, 50, 160, 2),
    _alpa("1b", 1_000_000_000, 50, 320, 2),
    _alpa("2b", 2_000_000_000, 50, 448, 2),
    _alpa("4b", 4_000_000_000, 50, 640, 2),
    _alpa("6.8b", 6_800_000_000, 50, 320, 16),
    _alpa(
        "13b",
        13_000_000_000,
        101,
        320,
        16,
        note="The table rounds 12.63B to 13B: 212 c^2 in a block of c channels, 12.57B in all, and what enters the "
        "stages.",
    ),
    ZooModel(
        name="resnext50",
        family="resnet",
        source="Collage section 2.5.1 (Xie et al. 2017, table 1)",
        config=ResNetConfig(blocks=BLOCKS[50], base_channels=64, squeeze=2, width=2, groups=32, num_classes=1000),
        is_trained_in_paper=False,
        expected_parameters=25_000_000,
    ),
    ZooModel(
        name="resnet3d-50",
        family="resnet",
        source="Collage section 2.5.1 (Hara et al. 2018)",
        config=ResNetConfig(blocks=BLOCKS[50], base_channels=64, num_classes=400, image_size=112, frames=16),
        is_trained_in_paper=False,
    ),
)
