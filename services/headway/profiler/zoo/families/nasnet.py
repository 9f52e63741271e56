"""NASNet-A: cells found by architecture search; each reads the outputs of the two before it."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class NasNetConfig:
    """Sizes of a NASNet-A; implements `headway.profiler.zoo.model.Architecture`.

    Three stacks of `num_cells` normal cells, with a reduction cell between two stacks, after two more in the stem;
    `filters` are those of the first stack. NASNet-A (N @ P) has N = num_cells and P = 24 filters.
    """

    num_cells: int
    filters: int
    stem_filters: int
    image_size: int
    num_classes: int = 1000

    @property
    def seq(self) -> None:
        return None

    def small(self) -> Self:
        return replace(self, num_cells=1, filters=8, stem_filters=8, image_size=33, num_classes=8)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:  # noqa: ARG002 - it has no sequences
        return (InputSpec((batch, 3, self.image_size, self.image_size)),)

    def targets(self, *, batch: int, seq: int) -> InputSpec:  # noqa: ARG002 - it has no sequences
        """Makes the label of each image."""
        return InputSpec((batch,), self.num_classes)


MODELS = (
    ZooModel(
        name="nasnet-a-large",
        family="nasnet",
        source="Collage section 2.5.1 (Zoph et al. 2018, table 2: 6 @ 4032)",
        config=NasNetConfig(num_cells=6, filters=168, stem_filters=96, image_size=331),
        is_trained_in_paper=False,
        expected_parameters=88_900_000,
    ),
    ZooModel(
        name="nasnet-a-mobile",
        family="nasnet",
        source="Collage section 2.5.1 (Zoph et al. 2018, table 3: 4 @ 1056)",
        config=NasNetConfig(num_cells=4, filters=44, stem_filters=32, image_size=224),
        is_trained_in_paper=False,
        expected_parameters=5_300_000,
    ),
)
