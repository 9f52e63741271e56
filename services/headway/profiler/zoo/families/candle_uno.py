"""CANDLE-Uno: towers of feed-forward layers side by side, concatenated; predicts a tumour's response to drugs."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CandleUnoConfig:
    """Sizes of a CANDLE-Uno; implements `headway.profiler.zoo.model.Architecture`."""

    num_branches: int
    num_layers: int = 4
    hidden: int = 4096

    @property
    def seq(self) -> None:
        return None

    def small(self) -> Self:
        return replace(self, hidden=16)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:  # noqa: ARG002 - it has no sequences
        """Makes the features of each branch."""
        return (InputSpec((batch, self.hidden)),) * self.num_branches

    def targets(self, *, batch: int, seq: int) -> None:  # noqa: ARG002 - it has no classes
        return None


def _graphpipe(name: str, source: str, num_branches: int) -> ZooModel:
    return ZooModel(
        name=name,
        family="candle-uno",
        source=source,
        config=CandleUnoConfig(num_branches=num_branches),
        is_trained_in_paper=True,
        note="Only the branches are described; one linear layer over them predicts the response.",
    )


MODELS = (
    _graphpipe("candle-uno", "GraphPipe appendix A.2", 7),
    *(_graphpipe(f"candle-uno-{branches}", "GraphPipe figure 7", branches) for branches in (2, 4, 8, 16)),
)
